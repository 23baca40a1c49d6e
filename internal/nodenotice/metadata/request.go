package metadata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// flavor is a header of every request, so that none is sent by mistake, and of every answer.
const flavor = "Metadata-Flavor"

// maxBytes of an answer that are read. The values that are followed are single words.
const maxBytes = 4 << 10

// value of a key.
type value struct{ text, etag string }

// strangerError is what something that is not Compute Engine's metadata server answers, or a server without the key.
type strangerError struct{ reason string }

func (e strangerError) Error() string { return e.reason }

// newTransport opens one connection for each key and keeps it. No proxy is between an instance and its metadata server.
func newTransport() *http.Transport {
	return &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxIdleConnsPerHost: 4}
}

// get reads a key. With the etag of an earlier answer the server holds the request until the value is another one, but
// no longer than hold.
func (f *Follower) get(ctx context.Context, key, etag string, hold time.Duration) (value, error) {
	address := strings.TrimSuffix(f.options.URL, "/") + "/computeMetadata/v1/" + key
	if etag != "" {
		query := url.Values{
			"wait_for_change": {"true"}, "last_etag": {etag}, "timeout_sec": {strconv.Itoa(int(max(hold, time.Second) / time.Second))},
		}
		address += "?" + query.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, hold+f.options.Slack)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return value{}, err
	}
	request.Header.Set(flavor, "Google")
	answer, err := f.transport.RoundTrip(request)
	if err != nil {
		return value{}, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBytes))
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return value{}, err
	}
	switch {
	case answer.Header.Get(flavor) != "Google":
		return value{}, strangerError{fmt.Sprintf("%s answers %s and is no metadata server of Compute Engine", f.options.URL, answer.Status)}
	case answer.StatusCode == http.StatusNotFound, answer.StatusCode == http.StatusForbidden:
		return value{}, strangerError{fmt.Sprintf("the metadata server does not give %s: %s", key, answer.Status)}
	case answer.StatusCode != http.StatusOK:
		return value{}, fmt.Errorf("the metadata server answers %s", answer.Status)
	}
	return value{text: strings.TrimSpace(string(body)), etag: answer.Header.Get("ETag")}, nil
}
