package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/internal/cmd/memory"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/internal/source/fetch"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// fetchMemory is where Go's garbage collector begins to try harder. The container has 256 MiB.
	fetchMemory = 192 << 20
	// terminationLog is where Kubernetes reads the termination message, unless the container says otherwise.
	terminationLog = "/dev/termination-log"
	// maxMessage bounds the message of a problem, so that all of the termination message is within the 4,096 bytes that are read.
	maxMessage = 2000
)

// newFetch returns the subcommand of the init container that fetches the code of a job.
func newFetch() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch",
		Short: "Fetch the code of a job (runs before the program)",
		Long: "Fetch the code of a job. It runs in the pods of jobs with spec.source and takes its settings from the environment;\n" +
			"see docs/guide/code.md.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			memory.Limit(50, fetchMemory)
			return runFetch(command.Context(), os.Getenv, command.OutOrStdout())
		},
	}
}

// runFetch fetches what the environment says, and leaves a termination message. What it returns has the exit code.
func runFetch(ctx context.Context, env func(string) string, out io.Writer) error {
	settings, err := fetchSettings(env)
	if err != nil {
		return err
	}
	status, err := fetch.Run(ctx, settings)
	if ctx.Err() != nil {
		return stopped{errors.New("stopped before the code was fetched")}
	}
	message := []byte(terminationMessage(status, err))
	if failed := os.WriteFile(cmp.Or(env(source.EnvTermination), terminationLog), message, 0o600); failed != nil {
		return errors.Join(err, fmt.Errorf("leave the termination message: %w", failed))
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "fetched %d files, %d bytes, digest %s\n", status.Files, status.SizeBytes, status.Digest)
	}
	return err
}

// stopped is the end by SIGTERM.
type stopped struct{ error }

// ExitCode is that of programs that end so.
func (stopped) ExitCode() int { return podend.ExitTerminated }

// terminationMessage is a source.Report, or the text of an error that is not the user's.
func terminationMessage(status *podtemplate.SourceStatus, err error) string {
	said := source.Report{Source: status}
	if err != nil {
		problem, ok := errors.AsType[*source.Problem](err)
		if !ok {
			return report.Cut(err.Error(), maxMessage)
		}
		said.Problem = &source.Problem{Reason: problem.Reason, Message: report.Cut(problem.Message, maxMessage)}
	}
	text, failed := json.Marshal(said)
	if failed != nil {
		return failed.Error()
	}
	return string(text)
}

// fetchSettings reads the settings. Its errors name the variable.
func fetchSettings(env func(string) string) (fetch.Settings, error) {
	s := fetch.Settings{
		Directory: env(source.EnvDirectory), Files: env(source.EnvFiles), Credentials: env(source.EnvCredentials), Digest: env(source.EnvDigest),
	}
	if err := json.Unmarshal([]byte(env(source.EnvSource)), &s.Source); err != nil {
		return s, fmt.Errorf("%s: is no source as JSON: %w", source.EnvSource, err)
	}
	if s.Directory == "" {
		return s, fmt.Errorf("%s: is not set", source.EnvDirectory)
	}
	return s, nil
}
