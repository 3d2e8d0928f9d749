// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

const (
	// connectTimeout is how long one scheduler may take to answer for the first time, port-forward
	// included.
	connectTimeout = 15 * time.Second
	// retries is how often a request is made again that the scheduler puts off (429, 503).
	retries = 4
	// maxAnswer is how many bytes of an answer are read.
	maxAnswer = 64 << 20
)

// Options say which scheduler is queried, and as whom.
type Options struct {
	// Config is how the user reaches the API server. The scheduler gets the same credentials.
	Config *rest.Config
	// Leases are where schedulers publish where they answer.
	Leases coordinationclient.LeasesGetter
	// URL is https://host:port of the scheduler; empty means that one is found, and reached through
	// a port-forward to its pod.
	URL string
	// Now is the time.
	Now func() time.Time
}

// Client queries one scheduler. It is safe for concurrent use.
//
// It sends the user's credentials only over connections that end at a published public key. The
// connection is TLS 1.3, in which the server has proved that it has the key before the client sends
// anything but its hello: no token, no client certificate, and the plugin of a kubeconfig that
// provides certificates is not called. The hello names no user and no host.
type Client struct {
	// Instance is the scheduler.
	Instance Instance
	// Server is what it said of itself when it was connected to.
	Server schedulerapi.Server

	http  *http.Client
	base  string
	close func()
}

// Connect connects to a scheduler: the one that leads if it can be reached, or else one that stands
// by. The error says for each why not. The caller closes the client.
//
// One that has expired is tried last: the clock of this machine may be wrong.
func Connect(ctx context.Context, options Options) (*Client, error) {
	found, err := Find(ctx, options.Leases, options.Now())
	switch {
	case len(found) == 0:
		return nil, cmp.Or(err, ErrNone)
	case options.URL != "":
		return connectTo(ctx, options, found)
	}
	var failed []error
	for _, instance := range found {
		client, err := Dial(ctx, options, instance)
		if err == nil || ctx.Err() != nil || isRefusal(err) {
			return client, err
		}
		failed = append(failed, fmt.Errorf("scheduler %s: %w", instance.Name, err))
	}
	return nil, errors.Join(failed...)
}

// isRefusal reports whether the scheduler knows the user, and refuses: another one would, too.
func isRefusal(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// connectTo connects to the scheduler at options.URL, which must be one of those that are found.
func connectTo(ctx context.Context, options Options, found []Instance) (*Client, error) {
	address, err := url.Parse(options.URL)
	if err != nil || address.Scheme != "https" || address.Port() == "" || strings.Trim(address.Path, "/") != "" ||
		address.User != nil || address.RawQuery != "" {
		return nil, fmt.Errorf("--scheduler=%s: want https://HOST:PORT", options.URL)
	}
	return open(ctx, options.Config, "https://"+address.Host, found, func() {})
}

// Dial connects to one scheduler: through a port-forward if it runs in a pod, or else to the
// address on which it listens, if this machine reaches it.
func Dial(ctx context.Context, options Options, instance Instance) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	only := []Instance{instance}
	if instance.Pod != "" {
		tunnel, err := openTunnel(ctx, options.Config, instance)
		if err != nil {
			return nil, err
		}
		client, err := open(ctx, options.Config, "https://"+tunnel.address, only, tunnel.stop)
		if why := tunnel.problem.last(); err != nil && why != nil {
			return nil, fmt.Errorf("%w; port %d of pod %s/%s: %w", err, instance.Port, instance.PodNamespace,
				instance.Pod, why)
		}
		return client, err
	}
	host, port := instance.BindAddress, strconv.Itoa(instance.Port)
	switch ip := net.ParseIP(host); {
	case ip == nil, ip.IsUnspecified():
		host = instance.Host
	case ip.IsLoopback() && !onThisMachine(instance.Host):
		return nil, fmt.Errorf("it runs in no pod that is known, and listens on %s of the machine %s alone; run this "+
			"command there, or start the scheduler with another --bind-address", net.JoinHostPort(host, port),
			instance.Host)
	}
	return open(ctx, options.Config, "https://"+net.JoinHostPort(host, port), only, func() {})
}

func onThisMachine(host string) bool {
	own, err := os.Hostname()
	return err == nil && strings.EqualFold(own, host)
}

// open makes the client of the scheduler at an address, which must be one of these, and queries who
// it is. It calls stop when the client is closed, or at once when it fails.
func open(
	ctx context.Context, config *rest.Config, base string, expected []Instance, stop func(),
) (*Client, error) {
	guard := &guard{expected: expected}
	transport, err := guard.roundTripper(config, base)
	if err != nil {
		stop()
		return nil, err
	}
	client := &Client{
		base: base,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a verified scheduler does not redirect
		}},
		close: func() {
			guard.transport.CloseIdleConnections()
			stop()
		},
	}
	if err := client.Query(ctx, http.MethodGet, schedulerapi.ServerPath, nil, &client.Server); err != nil {
		client.Close()
		return nil, err
	}
	client.Instance = *guard.found.Load()
	return client, nil
}

// Close ends the client's connections.
func (c *Client) Close() { c.close() }

// Query makes a request of the API and decodes the answer. path is one of package schedulerapi,
// with a query; in is encoded as the body, if it is not nil; out is a pointer, or a *[]byte for
// the answer as it is. An error of the scheduler's is an apierrors.APIStatus. What the scheduler
// puts off (429, 503) is queried again a few times.
func (c *Client) Query(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		text, after, err := c.send(ctx, method, path, body)
		switch {
		case err == nil:
			if raw, ok := out.(*[]byte); ok {
				*raw = text
				return nil
			}
			if err := json.Unmarshal(text, out); err != nil {
				return fmt.Errorf("read the scheduler's answer to %s: %w", path, err)
			}
			return nil
		case after == 0 || try == retries:
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(after):
		}
	}
}

// send makes a request once. after is when to make it again, 0 for never.
func (c *Client) send(
	ctx context.Context, method, path string, body []byte,
) (text []byte, after time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, 0, explain(err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("read the scheduler's answer to %s: %w", path, err)
	case len(text) > maxAnswer:
		return nil, 0, fmt.Errorf("the scheduler's answer to %s has more than %d bytes", path, maxAnswer)
	case response.StatusCode == http.StatusOK:
		return text, 0, nil
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // none says never
	return nil, time.Duration(seconds) * time.Second, refusal(response.StatusCode, text, method, path)
}

// refusal returns the scheduler's error about a request.
func refusal(code int, text []byte, method, path string) error {
	failed := &apierrors.StatusError{}
	if err := json.Unmarshal(text, &failed.ErrStatus); err != nil || failed.ErrStatus.Code == 0 {
		failed.ErrStatus = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReasonUnknown,
			Message: fmt.Sprintf("the scheduler answers %s with %d %s", path, code, http.StatusText(code)),
		}
	}
	switch {
	case apierrors.IsForbidden(failed):
		return fmt.Errorf("%w; it needs the right that \"kubectl auth can-i %s %s\" shows: ask an administrator for "+
			"the cluster role kubedevice-devices-viewer", failed, strings.ToLower(method), path)
	case apierrors.IsUnauthorized(failed):
		return fmt.Errorf("%w: the scheduler does not know these credentials; its --authentication-kubeconfig and "+
			"--client-ca-file must be those of the API server", failed)
	}
	return failed
}
