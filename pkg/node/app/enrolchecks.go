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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/cdi"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/pkg/node/telemetry"
)

// Registered returns why kubecri's health does not say that it is registered with NRI.
func (o *enrolOptions) Registered(ctx context.Context) error {
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

// Stop ends the process of kubecri and waits until it is gone. 0 is none.
func (o *enrolOptions) Stop(ctx context.Context) error {
	pid := o.process
	if pid == 0 {
		return nil
	}
	for sent := false; ; sent = true {
		signal := unix.SIGTERM
		if sent {
			signal = 0 // only checks whether it is there
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

// runtimes are the container runtimes of this machine.
type runtimes struct{}

var _ enrolment.Runtimes = runtimes{}

// Version returns name and version of the runtime behind an endpoint.
func (runtimes) Version(ctx context.Context, endpoint string) (version string, err error) {
	err = withRuntime(endpoint, func(client runtimeapi.RuntimeServiceClient) error {
		answer, err := client.Version(ctx, &runtimeapi.VersionRequest{})
		version = answer.GetRuntimeName() + " " + answer.GetRuntimeVersion()
		return err
	})
	return version, err
}

// CheckCDI returns why the runtime behind an endpoint ignores CDI devices, or nil.
func (runtimes) CheckCDI(ctx context.Context, endpoint string) error {
	return withRuntime(endpoint, func(client runtimeapi.RuntimeServiceClient) error { return cdi.Query(ctx, client) })
}

// CheckNRI returns name and version of the runtime, whose CRI is at the endpoint, that registers
// plugins at the socket, or why it would not register a kubecri that handles its requests.
func (runtimes) CheckNRI(ctx context.Context, endpoint, socket string) (version string, err error) {
	err = withConnection(endpoint, func(conn grpc.ClientConnInterface) error {
		version, err = nri.Check(ctx, socket, runtimeList{nrilist.New(conn)})
		return err
	})
	return version, err
}

// Validator returns the settings of the default validator of the runtime behind an endpoint.
func (runtimes) Validator(ctx context.Context, endpoint string) (nri.Settings, error) {
	return validatorSettings(ctx, endpoint)
}

// apiServers are the API servers that kubeconfigs name.
type apiServers struct{}

var _ enrolment.APIServers = apiServers{}

// Connect returns a client with the credentials in the file. It does not call the API server.
func (apiServers) Connect(kubeconfig string) (kubernetes.Interface, error) {
	return newClient(kubeconfig)
}

// Time returns the API server's time, which is in the head of each of its answers.
func (apiServers) Time(ctx context.Context, kubeconfig string) (time.Time, error) {
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

// CheckPlugin returns why kubecri with these options does not load a plugin file, or nil.
func (o *enrolOptions) CheckPlugin(ctx context.Context, file string) error {
	o.checker.AllowWritable = o.kubecri.AllowWritablePlugins
	_, err := o.checker.Check(ctx, file)
	return err
}

// Free returns what is free on the file system of a path.
func (machine) Free(path string) (uint64, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(filepath.Clean(path), &found); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return found.Bavail * uint64(found.Bsize), nil
}
