"""Python processes that have imported torch and are forked once per job. They answer what only torch itself knows."""
