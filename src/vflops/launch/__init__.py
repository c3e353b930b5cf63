"""Starting the processes of jobs: one folder per back end; independent of what they train."""
