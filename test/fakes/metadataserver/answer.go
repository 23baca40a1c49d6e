package metadataserver

import (
	"hash/fnv"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"
)

// flavor is a header of every request and every answer.
const flavor, google = "Metadata-Flavor", "Google"

// Value of a key at a time.
type Value struct {
	// Text, and its media type.
	Text, Type string
	// Missing says that there is no such key.
	Missing bool
	// Fault with which it is told.
	Fault Fault
	// Changed is closed when there may be another value.
	Changed <-chan struct{}
}

// Guard has every request refused that lacks the header by which none is sent by mistake, or comes through a proxy.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get(flavor) != google || request.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, request)
	})
}

// Answer a request with the value of a key, which is read again whenever it has changed. A request that waits for a change
// is held, as long as it asks for by the clock; hanging counts those that are.
func Answer(w http.ResponseWriter, request *http.Request, by clock.Clock, read func() Value, hanging func(more int)) {
	query := request.URL.Query()
	waits, last := query.Get("wait_for_change") == "true", query.Get("last_etag")
	var timeout <-chan time.Time
	if seconds, err := strconv.Atoi(query.Get("timeout_sec")); waits && err == nil && seconds > 0 {
		timer := by.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C()
	}
	for {
		value := read()
		silent := value.Fault == Silent
		etag := etagOf(value.Text)
		if !silent && (!waits || last != "" && last != etag || value.Fault != None) {
			value.write(w, etag)
			return
		}
		if !silent {
			last = etag
		}
		hanging(1)
		select {
		case <-value.Changed:
		case <-timeout:
			waits = false
		case <-request.Context().Done():
		}
		hanging(-1)
		if request.Context().Err() != nil {
			return
		}
	}
}

func (v Value) write(w http.ResponseWriter, etag string) {
	switch v.Fault {
	case Reset:
		panic(http.ErrAbortHandler)
	case Foreign:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set(flavor, google)
	if v.Fault != WithoutETag {
		w.Header().Set("ETag", etag)
	}
	switch {
	case v.Fault == Unavailable:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case v.Missing:
		http.Error(w, "Not Found", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", v.Type)
		_, _ = io.WriteString(w, v.Text) // the client may have gone
	}
}

func etagOf(text string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text)) // never fails
	return strconv.FormatUint(sum.Sum64(), 16)
}
