// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/telemetry"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

// registered returns why kubecri's health does not say that it is registered with NRI.
func (o *enrolOptions) registered(ctx context.Context) error {
	scheme, client := "http", &http.Client{}
	if !telemetry.IsLocal(o.kubecri.MetricsAddress) {
		// The certificate may be one that kubecri made. Whoever serves here instead is root.
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // see above
		scheme, client = "https", &http.Client{Transport: transport}
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+reachable(o.kubecri.MetricsAddress)+
		"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	const most = 1 << 16
	content, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "[+]nri ok") {
			return nil
		}
		if strings.HasPrefix(line, "[-]nri:") {
			return errors.New(strings.TrimSpace(line))
		}
	}
	return errors.New("kubecri's /readyz says nothing of NRI")
}

// reachable returns an address at which this machine reaches who serves the address, which may be
// all addresses of it.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// endProcess ends a process and waits until it is gone. 0 is none.
func endProcess(ctx context.Context, pid int) error {
	if pid == 0 {
		return nil
	}
	for sent := false; ; sent = true {
		signal := unix.SIGTERM
		if sent {
			signal = 0 // only asks whether it is there
		}
		if err := unix.Kill(pid, signal); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// withConnection calls the runtime behind an endpoint.
func withConnection(endpoint string, call func(grpc.ClientConnInterface) error) error {
	path, err := criproxy.SocketPath(endpoint)
	if err != nil {
		return err
	}
	conn, err := criproxy.Dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(conn)
}

// withRuntime calls its RuntimeService.
func withRuntime(endpoint string, call func(runtimeapi.RuntimeServiceClient) error) error {
	return withConnection(endpoint, func(conn grpc.ClientConnInterface) error {
		return call(runtimeapi.NewRuntimeServiceClient(conn))
	})
}

// checkNRI returns name and version of the runtime, whose CRI is at the endpoint, that registers
// plugins at the socket, or why it would not register kubecri.
func checkNRI(ctx context.Context, endpoint, socket string) (runtime string, err error) {
	err = withConnection(endpoint, func(conn grpc.ClientConnInterface) error {
		runtime, err = nri.Check(ctx, socket, nriListable(conn))
		return err
	})
	return runtime, err
}

// runtimeVersion returns name and version of the runtime behind an endpoint.
func runtimeVersion(ctx context.Context, endpoint string) (version string, err error) {
	err = withRuntime(endpoint, func(client runtimeapi.RuntimeServiceClient) error {
		answer, err := client.Version(ctx, &runtimeapi.VersionRequest{})
		version = answer.GetRuntimeName() + " " + answer.GetRuntimeVersion()
		return err
	})
	return version, err
}

// cdiSupport returns why the runtime behind an endpoint ignores CDI devices, or nil.
func cdiSupport(ctx context.Context, endpoint string) error {
	return withRuntime(endpoint, func(client runtimeapi.RuntimeServiceClient) error { return cdi.Query(ctx, client) })
}

// serverTime returns the API server's time, which is in the head of each of its answers.
func serverTime(ctx context.Context, kubeconfig string) (time.Time, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return time.Time{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return time.Time{}, err
	}
	defer client.CloseIdleConnections()
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return time.Time{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer answer.Body.Close()
	return http.ParseTime(answer.Header.Get("Date"))
}

// pluginCheck returns the check of one plugin file after another, as kubecri with these options
// loads them.
func pluginCheck(options *Options) func(ctx context.Context, file string) error {
	checker := pluginload.Checker{AllowWritable: options.AllowWritablePlugins}
	return func(ctx context.Context, file string) error {
		_, err := checker.Check(ctx, file)
		return err
	}
}

// freeBytes returns what is free on the file system of a path.
func freeBytes(path string) (uint64, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(filepath.Clean(path), &found); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return found.Bavail * uint64(found.Bsize), nil
}
