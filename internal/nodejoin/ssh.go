package nodejoin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	// dialTimeout is for the connection and the handshake.
	dialTimeout = 15 * time.Second
	// keepAlive is how often a silent instance is asked whether it is still there, and how long it may take to answer.
	keepAlive = 15 * time.Second
)

// SSH says how to log in to an instance.
type SSH struct {
	// Address is its host and port.
	Address string
	// User who logs in: root, or one who may run sudo without a password.
	User string
	// Key to log in with.
	Key *KeyPair
	// HostKeys are those that the instance has published, each a line of the authorized_keys form. Any other is refused.
	HostKeys []string
}

// OverSSH logs in to an instance and joins it. It returns when the instance has joined, which takes minutes, or ctx ends.
// Doing it twice is harmless. The error is an *SSHError once the connection is tried.
func OverSSH(ctx context.Context, target SSH, join Join, spec *spotv1alpha1.SpotInstanceVMSpec) error {
	text, err := joinScript(join, spec)
	if err != nil {
		return err
	}
	client, err := target.login(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	// Closing the connection ends everything that waits for it.
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	finished := make(chan struct{})
	defer close(finished)
	go watch(client, finished)
	return target.run(ctx, client, text, join.secret())
}

// login connects, checks the host key and logs in.
func (s SSH) login(ctx context.Context) (*ssh.Client, error) {
	pinned, err := parseHostKeys(s.HostKeys)
	if err != nil {
		return nil, s.failed(StageHostKey, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, s.failed(StageConnect, err)
	}
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	check := &hostKeyCheck{pinned: pinned}
	client, channels, requests, err := ssh.NewClientConn(connection, s.Address, &ssh.ClientConfig{
		User: s.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(s.Key.signer)},
		HostKeyCallback: check.callback, HostKeyAlgorithms: algorithms(pinned),
	})
	if err != nil {
		_ = connection.Close()
		return nil, s.failed(check.explain(ctx, err))
	}
	return ssh.NewClient(client, channels, requests), nil
}

// run gives the script to a shell of the superuser, on its standard input, so that the token is in no list of processes.
func (s SSH) run(ctx context.Context, client *ssh.Client, text, secret string) error {
	session, err := client.NewSession()
	if err != nil {
		return s.failed(StageCommand, err)
	}
	defer func() { _ = session.Close() }()
	output := &tail{}
	session.Stdin, session.Stdout, session.Stderr = strings.NewReader(text), output, output
	command := "/bin/bash -s"
	if s.User != "root" {
		command = "sudo -n " + command
	}
	err = session.Run(command)
	if err == nil {
		return nil
	}
	result := s.failed(StageCommand, err)
	result.Output = output.without(secret)
	exit, missing := (*ssh.ExitError)(nil), (*ssh.ExitMissingError)(nil)
	switch {
	case ctx.Err() != nil:
		result.Err = fmt.Errorf("joining took too long: %w", context.Cause(ctx))
	case errors.As(err, &exit):
		result.Err = fmt.Errorf("joining ended with exit code %d", exit.ExitStatus())
	case errors.As(err, &missing):
		result.Stage, result.Err = StageConnect, errors.New("the connection broke while the instance was joining")
	}
	return result
}

// watch closes a connection over which nothing comes back any more: an instance that is taken away says no goodbye.
func watch(client *ssh.Client, finished <-chan struct{}) {
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	answers := make(chan error, 1)
	for {
		select {
		case <-finished:
			return
		case <-ticker.C:
		}
		go func() {
			_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
			answers <- err
		}()
		select {
		case <-finished:
			return
		case err := <-answers:
			if err == nil {
				continue
			}
		case <-time.After(keepAlive):
		}
		_ = client.Close()
		return
	}
}

// hostKeyCheck knows which host keys an instance may have.
type hostKeyCheck struct {
	pinned []ssh.PublicKey
	// refused is the one that it had instead.
	refused ssh.PublicKey
	// accepted says that it had one of them.
	accepted bool
}

func (c *hostKeyCheck) callback(_ string, _ net.Addr, key ssh.PublicKey) error {
	c.accepted = slices.ContainsFunc(c.pinned, func(pinned ssh.PublicKey) bool { return bytes.Equal(pinned.Marshal(), key.Marshal()) })
	if c.accepted {
		return nil
	}
	c.refused = key
	return errors.New("host key mismatch")
}

// explain says how far a handshake came that failed, and why it did.
func (c *hostKeyCheck) explain(ctx context.Context, err error) (Stage, error) {
	negotiation := (*ssh.AlgorithmNegotiationError)(nil)
	switch {
	case ctx.Err() != nil:
		return StageConnect, err
	case c.refused != nil:
		return StageHostKey, fmt.Errorf("the host key %s is not one of those that the instance has published (%s): another machine answers at this address, "+
			"or the image replaces its host keys after the guest agent has published them; nothing was sent", fingerprint(c.refused), fingerprints(c.pinned))
	case errors.As(err, &negotiation):
		return StageHostKey, fmt.Errorf("no algorithm in common, or the instance has no host key of the kinds that it has published (%s): %w",
			fingerprints(c.pinned), err)
	case c.accepted && strings.Contains(err.Error(), "unable to authenticate"):
		return StageLogin, err
	}
	return StageConnect, err
}

// parseHostKeys reads what an instance has published.
func parseHostKeys(lines []string) ([]ssh.PublicKey, error) {
	if len(lines) == 0 {
		return nil, errors.New("the instance has published no host keys yet: its guest agent does so soon after the first start, if guest attributes are not " +
			"forbidden in the project")
	}
	keys := make([]ssh.PublicKey, 0, len(lines))
	for _, line := range lines {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("the instance has published a host key that cannot be read: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// algorithms are those by which a server can show that it has one of the keys; it would choose one of another key else.
func algorithms(keys []ssh.PublicKey) []string {
	var names []string
	for _, key := range keys {
		if key.Type() == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		names = append(names, key.Type())
	}
	return names
}

func fingerprint(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

func fingerprints(keys []ssh.PublicKey) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = fingerprint(key)
	}
	return strings.Join(texts, ", ")
}
