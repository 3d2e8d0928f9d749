// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// checkTimeout is how long all checks of one request may take together.
const checkTimeout = 2 * time.Second

// errWithheld stands for the reason of a failed check.
var errWithheld = errors.New("reason withheld from readers without a token that may get this path")

// check is one condition of health.
type check struct {
	name string
	run  func(ctx context.Context) error
	note func() string // if set, something more about it, or nothing
}

// report answers 200 if all checks pass and 503 if not, with a line for each, for requests that may
// know them with reasons.
func report(checks []check, mayKnow func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), checkTimeout)
		defer cancel()
		var text bytes.Buffer
		code := http.StatusOK
		for _, c := range checks {
			line := "[+]" + c.name + " ok"
			if err := c.run(ctx); err != nil {
				code = http.StatusServiceUnavailable
				if !mayKnow(request) {
					err = errWithheld
				}
				line = fmt.Sprintf("[-]%s: %v", c.name, err)
			}
			if c.note != nil && mayKnow(request) {
				if note := c.note(); note != "" {
					line += "; " + note
				}
			}
			fmt.Fprintln(&text, line)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		// The client may have gone away.
		_, _ = w.Write(text.Bytes())
	})
}

// socketAnswers checks that whoever serves the socket takes connections and speaks gRPC on them: a
// mere connect would succeed on a socket whose owner hangs, too.
func socketAnswers(path string) check {
	return check{name: "socket", run: func(ctx context.Context) error {
		conn, err := criproxy.Dial(path)
		if err != nil {
			return err
		}
		defer conn.Close()
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			switch state {
			case connectivity.TransientFailure:
				return fmt.Errorf("no process serves %s", path)
			case connectivity.Idle: // at first, or as the owner drains and has sent the connection away
				conn.Connect()
			}
			if !conn.WaitForStateChange(ctx, state) {
				return fmt.Errorf("%s does not answer: %w", path, context.Cause(ctx))
			}
		}
		return nil
	}}
}

// runtimeAnswers checks that the runtime behind the connection answers.
func runtimeAnswers(conn grpc.ClientConnInterface) check {
	return check{name: "runtime", run: func(ctx context.Context) error {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}}
}

// listenRetry is the pause between two tries to listen.
const listenRetry = time.Second

// serveHTTP serves handler on address until ctx is done, with HTTPS where there is a configuration
// for it. If the address is in use it retries: during a handover the predecessor has it, and no
// container must wait for that.
func serveHTTP(ctx context.Context, address string, handler http.Handler, tlsConfig *tls.Config) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Address, address)
	listener := listen(ctx, logger, address)
	if listener == nil {
		return
	}
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
	}
	logger.Info("Serving health and metrics", logkey.TLS, tlsConfig != nil)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		server.Close()
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		logger.Error(err, "Stopped serving health and metrics")
	}
	if !stop() {
		<-closed
	}
}

// listen returns nil if ctx is done first.
func listen(ctx context.Context, logger klog.Logger, address string) net.Listener {
	for logged := false; ; logged = true {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			return listener
		}
		if !logged {
			logger.Error(err, "Cannot serve health and metrics yet; see --metrics-bind-address")
		}
		timer := time.NewTimer(listenRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}
