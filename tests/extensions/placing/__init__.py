"""Chains and domains placed one by one."""
