package main

import (
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones; the machine may have no database.

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The names under which this one binary is a component of Kubernetes.
const (
	etcdName              = "etcd"
	apiserverName         = "kube-apiserver"
	schedulerName         = "kube-scheduler"
	controllerManagerName = "kube-controller-manager"
)

// runComponent becomes the component whose name the process was called with and does not
// return then; under any other name it returns at once.
func runComponent() {
	switch filepath.Base(os.Args[0]) {
	case etcdName:
		etcdmain.Main(os.Args)
		os.Exit(0)
	case apiserverName:
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case schedulerName:
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case controllerManagerName:
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	}
}
