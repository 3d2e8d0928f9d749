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
)

// folderMode is the kubelet's: nobody but root may register.
const folderMode = 0o750

// maxSocketPath is how long the path of a socket may be, in bytes: Linux's rule.
const maxSocketPath = 107

// serveRetry is the pause before the folder is tried again.
const serveRetry = time.Second

// Run serves plugins until ctx is done. It returns when none is called any more.
func (m *Manager) Run(ctx context.Context) {
	m.running.Go(func() { m.keepSaved(ctx) })
	m.running.Go(func() { m.watchKubelet(ctx) })
	if m.options.RegistryDir != "" {
		m.running.Go(func() { m.watchRegistry(ctx) })
	}
	said := ""
	for ctx.Err() == nil {
		if err := m.serve(ctx); err != nil {
			m.setServing(nil, err)
			if err.Error() != said {
				said = err.Error()
				klog.FromContext(ctx).Error(err, "Device plugins cannot register; it is tried again")
			}
			sleep(ctx, serveRetry)
		}
	}
	m.running.Wait()
}

// serve serves registrations until ctx is done.
func (m *Manager) serve(ctx context.Context) error {
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
	klog.FromContext(ctx).Info("Device plugins can register", "folder", m.options.Dir)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve device plugins in %s: %w", m.options.Dir, err)
	}
	// Serve returns before Stop does; after this no registration is under way.
	server.Stop()
	return nil
}

// listen makes the folder ready: stale sockets go first, then comes the host's own. Both matter: some plugins start anew
// when their own socket is removed, others when kubelet.sock is created. The first to go is that of the process before, which
// then knows why its plugins leave.
func listen(folder string) (net.Listener, error) {
	if path := filepath.Join(folder, socketName); len(path) > maxSocketPath {
		return nil, fmt.Errorf("folder of device plugins: %s has %d bytes, and the path of a socket at most %d; choose a shorter one", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return nil, fmt.Errorf("folder of device plugins: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("folder of device plugins: %w", err)
	}
	stale := []string{socketName}
	for _, entry := range entries {
		if entry.Type() == os.ModeSocket {
			stale = append(stale, entry.Name())
		}
	}
	for _, name := range stale {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("stale socket of a device plugin: %w", err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(folder, socketName))
	if err != nil {
		return nil, fmt.Errorf("socket for device plugins: %w", err)
	}
	// By the time this listener is closed, the socket may be the next process's.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(filepath.Join(folder, socketName), 0o600); err != nil {
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
