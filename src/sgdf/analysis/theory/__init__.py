"""The paper's theory, shown: a table and a picture of each part, made from ``sgdf.theory``."""
