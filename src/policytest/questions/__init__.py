"""One file or folder for each verb."""
