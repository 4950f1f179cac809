"""`treadle serve`: one server, or several processes behind one port."""
