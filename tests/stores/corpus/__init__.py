"""Databases as earlier versions wrote them, one dump for each format. They are added to and never changed."""
