"""From a job to processes on slots: one file a way to start them; knows nothing of training."""
