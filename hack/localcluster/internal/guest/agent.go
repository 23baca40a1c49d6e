package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// metadataURL is where the metadata server is asked.
const metadataURL = "http://" + metadataAddress + "/computeMetadata/v1/"

// errNoAttribute says that the metadata server knows no such attribute.
var errNoAttribute = errors.New("no such attribute")

// runAgent does what Google's guest agent does at each start: accounts, host keys, then the startup script.
func (m *machine) runAgent(ctx context.Context) error {
	if err := makeHostKeys(ctx); err != nil {
		return err
	}
	m.sshd.start()
	script, err := m.startupScript(ctx)
	if err != nil || script == "" {
		return err
	}
	return runStartupScript(ctx, script)
}

// startupScript returns the script that the metadata server has, after doing what else it asks for, or the one on the disk; empty
// when there is none.
func (m *machine) startupScript(ctx context.Context) (string, error) {
	if m.config.Metadata == "" {
		script, err := os.ReadFile(filepath.Join(m.config.Disk, DiskScript))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return string(script), err
	}
	if err := waitForMetadata(ctx); err != nil {
		return "", err
	}
	keys, err := attribute(ctx, "ssh-keys")
	if err == nil {
		err = makeAccounts(ctx, keys)
	}
	if err != nil && !errors.Is(err, errNoAttribute) {
		return "", err
	}
	if enabled, err := attribute(ctx, "enable-guest-attributes"); err == nil && strings.EqualFold(enabled, "true") {
		if err := publishHostKeys(ctx); err != nil {
			return "", err
		}
	}
	script, err := attribute(ctx, "startup-script")
	if errors.Is(err, errNoAttribute) {
		err = nil
	}
	return script, err
}

func waitForMetadata(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = ask(ctx, http.MethodGet, "instance/", "")
		return last == nil || errors.Is(last, errNoAttribute), nil
	})
	if err != nil {
		return fmt.Errorf("the metadata server does not answer: %w", errors.Join(err, last))
	}
	return nil
}

func attribute(ctx context.Context, name string) (string, error) {
	value, err := ask(ctx, http.MethodGet, "instance/attributes/"+name, "")
	if errors.Is(err, errNoAttribute) {
		return ask(ctx, http.MethodGet, "project/attributes/"+name, "")
	}
	return value, err
}

func ask(ctx context.Context, method, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, metadataURL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Metadata-Flavor", "Google")
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "", err
	case response.StatusCode == http.StatusNotFound:
		return "", errNoAttribute
	case response.StatusCode/100 != 2:
		return "", fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return string(content), nil
}

func runStartupScript(ctx context.Context, script string) error {
	dir, err := os.MkdirTemp("", "metadata-scripts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "startup-script")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Dir = environment(), "/"
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("startup-script: %w", err)
	}
	prefixLines(os.Stdout, output, "startup-script: ")
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("startup-script: %w", err)
	}
	fmt.Println("startup-script: finished")
	return nil
}

// prefixLines copies lines, each after a prefix.
func prefixLines(to io.Writer, from io.Reader, prefix string) {
	reader := bufio.NewReader(from)
	for more := true; more; {
		line, err := reader.ReadString('\n')
		if more = err == nil; line != "" {
			fmt.Fprintln(to, prefix+strings.TrimRight(line, "\n"))
		}
	}
}
