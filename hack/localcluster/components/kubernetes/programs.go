package main

import (
	"context"
	"os"
	_ "time/tzdata" // CronJob time zones without a zoneinfo folder on the host

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's client authentication plugins
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	"go.etcd.io/etcd/server/v3/etcdmain"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxyapp "k8s.io/kubernetes/cmd/kube-proxy/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadmapp "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
)

func etcd(args []string) { etcdmain.Main(args) }

func kubeAPIServer([]string) { os.Exit(cli.Run(apiserverapp.NewAPIServerCommand())) }

func kubeControllerManager([]string) {
	os.Exit(cli.Run(controllermanagerapp.NewControllerManagerCommand()))
}

func kubeScheduler([]string) { os.Exit(cli.Run(schedulerapp.NewSchedulerCommand())) }

func kubeProxy([]string) { os.Exit(cli.Run(proxyapp.NewProxyCommand())) }

func kubelet([]string) { os.Exit(cli.Run(kubeletapp.NewKubeletCommand(context.Background()))) }

func kubeadm([]string) { kubeadmerrors.HandleError(kubeadmapp.Run()) }

func kubectl([]string) {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
