
run_spark org.apache.spark.deploy.master.Master --host "$address" --port @{port} --webui-port @{ui_port}
