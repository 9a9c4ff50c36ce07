
# Spark's daemon is there when its log says so; systemd starts it again if it ends before that.
say starting
until journalctl --boot --unit seep-spark |
    grep --extended-regexp 'Starting Spark master at|Successfully registered with master' >/dev/null; do
    sleep 1
done
say ready
