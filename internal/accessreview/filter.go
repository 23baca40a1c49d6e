package accessreview

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	allowedFor = time.Minute
	refusedFor = 10 * time.Second
	maxAnswers = 4096
)

// request is what an answer is cached for. The token is kept as a hash.
type request struct {
	token        [sha256.Size]byte
	method, path string
}

// answer to a request: status 200 lets it pass.
type answer struct {
	status  int
	message string
}

var unauthorized = answer{http.StatusUnauthorized, "Unauthorized"}

// MetricsFilter lets requests pass whose bearer token the API server accepts and whose user may get the path (nonResourceURLs). Unlike
// controller-runtime's filter it does not link k8s.io/apiserver.
func MetricsFilter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	return metricsFilter(config, httpClient, time.Now)
}

func metricsFilter(config *rest.Config, httpClient *http.Client, now func() time.Time) (metricsserver.Filter, error) {
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("set up the client for access reviews: %w", err)
	}
	answers := cache.NewLRUExpireCacheWithClock(maxAnswers, clock(now))
	strangers := newStrangers(now)
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token := bearer(r)
			if token == "" {
				http.Error(w, unauthorized.message, unauthorized.status)
				return
			}
			key := request{sha256.Sum256([]byte(token)), r.Method, r.URL.Path}
			cached, ok := answers.Get(key)
			found, _ := cached.(answer)
			if !ok {
				counted, ok := strangers.enter(r, key.token)
				if !ok {
					w.Header().Set("Retry-After", "60")
					http.Error(w, "Too many requests without the right to read metrics", http.StatusTooManyRequests)
					return
				}
				var err error
				switch found, err = review(r, client, token); {
				case err != nil:
					log.Error(err, "Cannot review access to metrics")
					strangers.leave(counted)
				case found.status == http.StatusOK:
					answers.Add(key, found, allowedFor)
					strangers.good.Add(key.token, nil, goodFor)
					strangers.leave(counted)
				default:
					answers.Add(key, found, refusedFor)
				}
			}
			if found.status != http.StatusOK {
				http.Error(w, found.message, found.status)
				return
			}
			handler.ServeHTTP(w, r)
		}), nil
	}, nil
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func review(r *http.Request, client kubernetes.Interface, token string) (answer, error) {
	user, ok, err := Token(r.Context(), client, token, "")
	switch {
	case err != nil:
		return answer{http.StatusInternalServerError, "Authentication failed"}, err
	case !ok:
		return unauthorized, nil
	}
	allowed, _, err := Access(r.Context(), client, user, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
	})
	switch {
	case err != nil:
		return answer{http.StatusInternalServerError, fmt.Sprintf("Authorization for user %s failed", user.Username)}, err
	case !allowed:
		return answer{http.StatusForbidden, fmt.Sprintf("Authorization denied for user %s", user.Username)}, nil
	}
	return answer{status: http.StatusOK}, nil
}
