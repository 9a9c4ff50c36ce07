#!/bin/bash
# What every VM of a cluster does when it starts: installs Java 17, Python and the pinned environment, once, and runs a
# daemon of Spark as a service of a user without rights. Packages come from where the image is set up to get them.
set -euo pipefail

home=/opt/seep
pins=@{pins}
pins_url=@{url}

install_system_packages() {
    if command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get -o DPkg::Lock::Timeout=300 update
        apt-get -o DPkg::Lock::Timeout=300 install --yes curl openjdk-17-jre-headless procps python3-venv
    else
        dnf install --assumeyes java-17-amazon-corretto-headless procps-ng python3.11
    fi
}

install_environment() {
    "$(command -v python3.11 || command -v python3)" -m venv "$home/venv"
    if [[ -n $pins_url ]]; then
        curl --fail --silent --show-error --location --retry 5 --output "$home/requirements.txt" "$pins_url"
    else
        printf '%s\n' "$pins" >"$home/requirements.txt"
    fi
    "$home/venv/bin/python" -m pip install --no-deps --requirement "$home/requirements.txt"
}

# Takes the class of the daemon and its arguments. PATH decides which python3 the executors run.
run_spark() {
    cat >/etc/systemd/system/seep-spark.service <<UNIT
[Unit]
Description=Spark daemon of a seep cluster
Wants=network-online.target
After=network-online.target

[Service]
User=seep
WorkingDirectory=$home/work
Environment=PATH=$home/venv/bin:/usr/local/bin:/usr/bin:/bin
Environment=SPARK_LOCAL_IP=$address
Environment=SPARK_WORKER_DIR=$home/work
ExecStart=$home/venv/bin/spark-class $*
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
UNIT
    systemctl daemon-reload
    systemctl enable --now seep-spark.service
}

if [[ ! -e $home/installed ]]; then
    id seep >/dev/null 2>&1 || useradd --system --shell /usr/sbin/nologin seep
    install --directory "$home"
    install --directory --owner seep "$home/work"
    install_system_packages
    install_environment
    touch "$home/installed"
fi
address=$(hostname -I | cut --delimiter=' ' --fields=1)
