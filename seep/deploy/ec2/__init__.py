"""Clusters in Amazon EC2: roles, network rules, launch templates, and the instances that they make."""
