// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// checkLimit is how long all checks of one request may take together.
const checkLimit = 2 * time.Second

// check is one thing that must be well.
type check struct {
	name string
	run  func(ctx context.Context) error
}

// report answers 200 if all checks are well and 503 if not, with a line for each.
func report(checks []check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), checkLimit)
		defer cancel()
		var text bytes.Buffer
		code := http.StatusOK
		for _, c := range checks {
			if err := c.run(ctx); err != nil {
				code = http.StatusServiceUnavailable
				fmt.Fprintf(&text, "[-]%s: %v\n", c.name, err)
			} else {
				fmt.Fprintf(&text, "[+]%s ok\n", c.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		// A reader that has gone away has nothing to be told.
		_, _ = w.Write(text.Bytes())
	})
}

// socketAnswers checks that the kubelet can connect.
func socketAnswers(path string) check {
	return check{"socket", func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}

// runtimeAnswers checks that the runtime behind the connection answers.
func runtimeAnswers(conn grpc.ClientConnInterface) check {
	return check{"runtime", func(ctx context.Context) error {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}}
}

// serveHTTP serves handler on address, if there is one. The caller calls stop in the end.
func serveHTTP(ctx context.Context, address string, handler http.Handler) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w; choose another, or none with an empty one", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Health and metrics are not served any more")
		}
	}()
	klog.FromContext(ctx).Info("Serving health and metrics", "address", listener.Addr())
	return func() {
		server.Close()
		<-served
	}, nil
}
