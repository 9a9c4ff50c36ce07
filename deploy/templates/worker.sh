
run_spark org.apache.spark.deploy.worker.Worker --host "$address" --cores @{cores} @{master}
