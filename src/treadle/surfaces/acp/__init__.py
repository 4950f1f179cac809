"""`treadle acp`: agents in editors, over the Agent Client Protocol on standard input and output."""
