package containercheckpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Kubelet has the kubelet of this node take checkpoints.
type Kubelet struct {
	// Address is host:port of the kubelet.
	Address string
	// TokenFile is the service account's token, read again for each request since it is replaced from time to time.
	TokenFile string
	// AuthoritiesFile has the certificates by which a kubelet is known that is not on this machine.
	AuthoritiesFile string
	// Timeout is how long a checkpoint may take.
	Timeout time.Duration
	// Local says whether an address is this machine's own; nil asks the machine.
	Local func(host string) (bool, error)
}

// kubeletError is the kubelet's answer when it took no checkpoint.
type kubeletError struct {
	code int
	text string
}

func (e *kubeletError) Error() string {
	return fmt.Sprintf("the kubelet answers %d: %s", e.code, e.text)
}

// grace is what the answer of the kubelet may take after the runtime has given up.
const grace = 15 * time.Second

// Checkpoint has the memory of a running container written down, and returns the name of the archive in the kubelet's folder
// of checkpoints. The container goes on.
func (k Kubelet) Checkpoint(ctx context.Context, namespace, pod, container string) (string, error) {
	client, err := k.client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	at := url.URL{
		Scheme: "https", Host: k.Address, Path: path.Join("/checkpoint", namespace, pod, container),
		RawQuery: url.Values{"timeout": {strconv.Itoa(int(k.Timeout.Seconds()))}}.Encode(),
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout+grace)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return "", fmt.Errorf("make the request to the kubelet: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the kubelet at %s for a checkpoint: %w", k.Address, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("read the kubelet's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", &kubeletError{code: response.StatusCode, text: strings.TrimSpace(string(body))}
	}
	var answer struct{ Items []string }
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Items) != 1 {
		return "", fmt.Errorf("the kubelet's answer names no archive: %q", body)
	}
	// Its folder has another path in this container.
	return path.Base(answer.Items[0]), nil
}

// client trusts whatever answers on this machine itself: kubelets commonly have a certificate that they signed for
// themselves, and only root of this node could listen there in its place. Elsewhere the certificate must be good.
func (k Kubelet) client() (*http.Client, error) {
	host, _, err := net.SplitHostPort(k.Address)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-address: %q is not host:port: %w", k.Address, err)
	}
	local := k.Local
	if local == nil {
		local = isLocal
	}
	own, err := local(host)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		BearerTokenFile: k.TokenFile, TLSClientConfig: rest.TLSClientConfig{Insecure: own}, Proxy: http.ProxyURL(nil),
	}
	if !own {
		config.CAFile = k.AuthoritiesFile
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token and, where the kubelet is on another machine, the certificate authorities of "+
			"--kubelet-authorities: %w", err)
	}
	// The token is for the kubelet alone.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// isLocal says whether an IP address is one of this machine's.
func isLocal(host string) (bool, error) {
	ip := net.ParseIP(host)
	if ip == nil {
		return false, nil
	}
	if ip.IsLoopback() {
		return true, nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("find out this machine's addresses: %w", err)
	}
	return slices.ContainsFunc(addresses, func(address net.Addr) bool {
		network, ok := address.(*net.IPNet)
		return ok && network.IP.Equal(ip)
	}), nil
}
