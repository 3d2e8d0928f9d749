// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// serveRetry is the delay before a directory is tried again.
const serveRetry = time.Second

// Run serves plugins until ctx is done and all calls have ended. Run WatchKubelet, too, where there
// is a kubelet.
func (m *Manager) Run(ctx context.Context) {
	m.running.Go(func() { m.keepSaved(ctx) })
	if m.options.RegistryDir != "" {
		m.running.Go(func() { m.watchRegistry(ctx) })
	}
	logged := ""
	for ctx.Err() == nil {
		if err := m.serve(ctx); err != nil {
			m.setServing(nil, err)
			if err.Error() != logged {
				logged = err.Error()
				klog.FromContext(ctx).Error(err, "Device plugins cannot register; will retry")
			}
			sleep(ctx, serveRetry)
		}
	}
	m.running.Wait()
}

// serve serves registrations until ctx is done.
func (m *Manager) serve(ctx context.Context) error {
	if err := makeDirectory(ctx, m.options.Dir, m.labels); err != nil {
		return fmt.Errorf("directory of device plugins: %w", err)
	}
	listener, err := listen(m.options.Dir)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(server, &registrar{manager: m, ctx: ctx})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	own, err := os.Lstat(m.socket())
	if err != nil {
		listener.Close()
		return fmt.Errorf("socket for device plugins: %w", err)
	}
	m.setServing(own, nil)
	klog.FromContext(ctx).Info("Device plugins can register", logkey.Directory, m.options.Dir)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve device plugins in %s: %w", m.options.Dir, err)
	}
	// Serve returns before Stop does; after this no registration is in progress.
	server.Stop()
	return nil
}

// listen prepares the directory, which is there: it removes stale sockets and then creates the
// manager's own. Both matter, as some plugins restart when their own socket is removed, others when
// kubelet.sock is created. The first to be removed is that of the process before, which then knows
// why its plugins leave.
func listen(directory string) (net.Listener, error) {
	socket := filepath.Join(directory, socketName)
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("directory of device plugins: %s has %d bytes, and the path of a socket at most %d; "+
			"choose a shorter one", socket, len(socket), maxSocketPath)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("directory of device plugins: %w", err)
	}
	stale := []string{socketName}
	for _, entry := range entries {
		if entry.Type() == os.ModeSocket {
			stale = append(stale, entry.Name())
		}
	}
	for _, name := range stale {
		if err := os.Remove(filepath.Join(directory, name)); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("stale socket of a device plugin: %w", err)
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("socket for device plugins: %w", err)
	}
	// When this listener is closed, the socket may be the next process's.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(socket, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("socket for device plugins: %w", err)
	}
	return listener, nil
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
