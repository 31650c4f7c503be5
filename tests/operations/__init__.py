"""The deployment recipes, proxies, alerts, restarts, backups and upgrades, with the real programs."""
