"""One module for each environment. Each class in them is a memory, driven the way its documentation shows."""
