"""What an experiment file may say, and the runs that it stands for."""
