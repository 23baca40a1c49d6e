// Command localcluster runs a one-node Kubernetes cluster as processes of this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// An ordinary user's PATH lacks the system's folders, where some of the programs are.
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
	err := cli.New().ExecuteContext(ctx)
	if errors.Is(err, cli.ErrNotReady) {
		os.Exit(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}
