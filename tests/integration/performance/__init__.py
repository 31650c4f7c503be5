"""The hot paths beside their floors: a slip is noticed, a busy machine is not."""
