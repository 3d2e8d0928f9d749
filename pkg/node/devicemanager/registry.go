// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// notifyLimit is how long a plugin may take to hear whether it is registered.
const notifyLimit = 5 * time.Second

// watchRegistry registers the plugins whose sockets are in the registry folder, for as long as they are there, until ctx is
// done.
func (m *Manager) watchRegistry(ctx context.Context) {
	for ctx.Err() == nil {
		w := &registryWatch{manager: m, tended: map[string]context.CancelFunc{}}
		err := w.run(ctx, m.options.RegistryDir)
		w.close()
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The registry of plugins cannot be watched; it is tried again", "folder", m.options.RegistryDir)
			sleep(ctx, serveRetry)
		}
	}
}

// registryWatch watches the registry folder and what is below it. It belongs to one goroutine.
type registryWatch struct {
	manager *Manager
	watcher *fsnotify.Watcher
	tended  map[string]context.CancelFunc // by socket
	tending sync.WaitGroup
}

func (w *registryWatch) run(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return fmt.Errorf("registry of plugins: %w", err)
	}
	var err error
	if w.watcher, err = fsnotify.NewWatcher(); err != nil {
		return fmt.Errorf("registry of plugins: %w", err)
	}
	defer w.watcher.Close()
	if err := w.enter(ctx, folder); err != nil {
		return fmt.Errorf("registry of plugins: %w", err)
	}
	for {
		select {
		case event := <-w.watcher.Events:
			switch {
			case event.Has(fsnotify.Create):
				// A file that has gone again is no error.
				_ = w.enter(ctx, event.Name)
			case event.Has(fsnotify.Remove), event.Has(fsnotify.Rename):
				w.leave(event.Name)
				if event.Name == folder {
					return fmt.Errorf("registry of plugins: %s was removed", folder)
				}
			}
		case err := <-w.watcher.Errors:
			return fmt.Errorf("registry of plugins: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// enter tends the socket at path, or all that are in the folder at path. Names that begin with a dot are left alone.
func (w *registryWatch) enter(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(info.Name(), "."):
		return nil
	case info.Mode().Type() == os.ModeSocket:
		w.leave(path)
		there, cancel := context.WithCancel(ctx)
		w.tended[path] = cancel
		w.tending.Go(func() { w.manager.tend(there, ctx, path) })
		return nil
	case !info.IsDir():
		return nil
	}
	// The watch comes first, so that nothing is missed; what is seen twice is tended once.
	if err := w.watcher.Add(path); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		inside := filepath.Join(path, entry.Name())
		if _, known := w.tended[inside]; !known {
			_ = w.enter(ctx, inside)
		}
	}
	return nil
}

// leave ends what was begun for the socket at path.
func (w *registryWatch) leave(path string) {
	if cancel, known := w.tended[path]; known {
		cancel()
		delete(w.tended, path)
	}
}

// close waits for everything that was begun.
func (w *registryWatch) close() {
	for _, cancel := range w.tended {
		cancel()
	}
	w.tending.Wait()
}

// tend registers the plugin behind the socket, and again when its stream has ended, until ctx is done: the socket is gone
// then, or life is over.
func (m *Manager) tend(ctx, life context.Context, socket string) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "socket", socket)
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}
	pause := fresh
	for ctx.Err() == nil {
		s, err := m.invite(ctx, life, socket)
		if err != nil {
			logger.Error(err, "A device plugin in the registry is not registered; it is tried again")
			sleep(ctx, pause.Step())
			continue
		}
		pause = fresh
		stop := context.AfterFunc(ctx, s.close)
		<-s.ended
		stop()
		sleep(ctx, pause.Step())
	}
}

// invite asks the plugin behind the socket what it is, registers it and tells it the outcome.
func (m *Manager) invite(ctx, life context.Context, socket string) (*session, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registrationapi.NewRegistrationClient(conn)
	asked, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	info, err := client.GetInfo(asked, &registrationapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("no answer from the plugin at %s to GetInfo within %v: %w", socket, dialLimit, reason(err))
	}
	s, err := m.admitInfo(ctx, life, socket, info)
	outcome := &registrationapi.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		outcome.Error = reason(err).Error()
	}
	told, cancel := context.WithTimeout(ctx, notifyLimit)
	defer cancel()
	if _, notifyErr := client.NotifyRegistrationStatus(told, outcome); notifyErr != nil && err == nil {
		s.close()
		return nil, fmt.Errorf("the plugin at %s does not take that it is registered: %w", socket, reason(notifyErr))
	}
	return s, err
}

func (m *Manager) admitInfo(ctx, life context.Context, socket string, info *registrationapi.PluginInfo) (*session, error) {
	if info.GetType() != registrationapi.DevicePlugin {
		return nil, status.Errorf(codes.InvalidArgument, "plugin type %q is not supported by kubecri: only %s is", info.GetType(), registrationapi.DevicePlugin)
	}
	if err := checkVersions(info.GetSupportedVersions()...); err != nil {
		return nil, err
	}
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = socket
	}
	if folder := filepath.Dir(endpoint); filepath.Clean(endpoint) != endpoint || folder != filepath.Clean(m.options.Dir) && folder != filepath.Dir(socket) {
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %q is not in the folder of the plugin's socket %s, nor in %s", endpoint, socket, m.options.Dir)
	}
	return m.admit(ctx, life, types.ResourceName(info.GetName()), endpoint)
}
