"""The files of Linear Road: tuples, history and answers, read, checked and written."""
