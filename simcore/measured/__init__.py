"""What real runs measured, as files: records of single runs, and validations of many cells."""
