"""Changes of texts: where the text that a model names is in a file, and what the file contains after the change.

Nothing here reads or writes a file. The tools, the checks before an approval and the views of a call share it."""
