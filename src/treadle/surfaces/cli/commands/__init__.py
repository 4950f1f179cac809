"""The commands of `treadle`: one module for each group, imported when one of its commands is used."""
