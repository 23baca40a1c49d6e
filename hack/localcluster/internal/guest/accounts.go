package guest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

const (
	sshdConfig = "/etc/ssh/machine_sshd_config"
	// hostKeyPrefix is before the names of the machine's own host keys; those beside it belong to the host.
	hostKeyPrefix = "/etc/ssh/machine_"
	// sudoers is the group whose members may do everything, as the guest agent calls it.
	sudoers = "google-sudoers"
)

var hostKeyTypes = []string{"ed25519", "ecdsa"}

// makeHostKeys makes the host keys at the first start.
func makeHostKeys(ctx context.Context) error {
	config := "Port 22\nAddressFamily inet\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n" +
		"PidFile /run/sshd.pid\nLogLevel VERBOSE\n"
	for _, kind := range hostKeyTypes {
		path := hostKeyPrefix + kind
		config += "HostKey " + path + "\n"
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := host.Run(ctx, "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "machine", "-f", path); err != nil {
			return err
		}
	}
	return os.WriteFile(sshdConfig, []byte(config), 0o644)
}

// publishHostKeys writes the host keys where the cloud's API shows them.
func publishHostKeys(ctx context.Context) error {
	for _, kind := range hostKeyTypes {
		content, err := os.ReadFile(hostKeyPrefix + kind + ".pub")
		if err != nil {
			return err
		}
		fields := strings.Fields(string(content))
		if len(fields) < 2 {
			return fmt.Errorf("%s%s.pub is not a public key", hostKeyPrefix, kind)
		}
		if _, err := ask(ctx, http.MethodPut, "instance/guest-attributes/hostkeys/"+fields[0], fields[1]); err != nil {
			return fmt.Errorf("publish host key: %w", err)
		}
	}
	return nil
}

// makeAccounts makes the users of the attribute ssh-keys, lines of "user:key", who may become root.
func makeAccounts(ctx context.Context, keys string) error {
	byUser := map[string][]string{}
	for line := range strings.Lines(keys) {
		name, key, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "" {
			byUser[name] = append(byUser[name], key)
		}
	}
	if len(byUser) == 0 {
		return nil
	}
	if err := host.Run(ctx, "groupadd", "--force", sudoers); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/sudoers.d/google_sudoers", []byte("%"+sudoers+" ALL=(ALL:ALL) NOPASSWD:ALL\n"), 0o440); err != nil {
		return err
	}
	for name, lines := range byUser {
		if err := makeAccount(ctx, name, lines); err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
	}
	return nil
}

func makeAccount(ctx context.Context, name string, keys []string) error {
	account, err := user.Lookup(name)
	if missing := user.UnknownUserError(""); errors.As(err, &missing) {
		// No password fits *; with ! the SSH server would take the account for locked.
		if err := host.Run(ctx, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", sudoers, "--password", "*", name); err != nil {
			return err
		}
		account, err = user.Lookup(name)
	}
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	dir := filepath.Join(account.HomeDir, ".ssh")
	file := filepath.Join(dir, "authorized_keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chown(dir, uid, gid), os.Chown(file, uid, gid))
}
