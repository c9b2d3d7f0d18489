"""Language models of words on the Penn Treebank."""
