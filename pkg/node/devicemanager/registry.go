// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// watchRegistry registers the plugins whose sockets are in the registry directory, for as long as
// they are there, until ctx is done.
func (m *Manager) watchRegistry(ctx context.Context) {
	for ctx.Err() == nil {
		w := &registryWatch{manager: m, plugins: map[string]context.CancelFunc{}}
		err := w.run(ctx, m.options.RegistryDir)
		w.close()
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot watch the registry of plugins; will retry",
				logkey.Directory, m.options.RegistryDir)
			sleep(ctx, serveRetry)
		}
	}
}

// registryWatch watches the registry directory and all below it. It belongs to one goroutine.
type registryWatch struct {
	manager *Manager
	watcher *fsnotify.Watcher
	plugins map[string]context.CancelFunc // by socket
	running sync.WaitGroup
}

// run watches until ctx is done. Otherwise its error says why it cannot.
func (w *registryWatch) run(ctx context.Context, directory string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("registry of plugins: %w", err)
		}
	}()
	if err := makeDirectory(ctx, directory, w.manager.labels); err != nil {
		return err
	}
	if w.watcher, err = fsnotify.NewWatcher(); err != nil {
		return err
	}
	defer w.watcher.Close()
	if err := w.add(ctx, directory); err != nil {
		return err
	}
	for {
		select {
		case event := <-w.watcher.Events:
			switch {
			case event.Has(fsnotify.Create):
				// A file that is gone again is no error.
				_ = w.add(ctx, event.Name)
			case event.Has(fsnotify.Remove), event.Has(fsnotify.Rename):
				w.remove(event.Name)
				if event.Name == directory {
					return fmt.Errorf("%s was removed", directory)
				}
			}
		case err := <-w.watcher.Errors:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// add registers the plugin whose socket is at path, or all whose sockets are in the directory at
// path. Names that begin with a dot are ignored.
func (w *registryWatch) add(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(info.Name(), "."):
		return nil
	case info.Mode().Type() == os.ModeSocket:
		w.remove(path)
		present, cancel := context.WithCancel(ctx)
		w.plugins[path] = cancel
		w.running.Go(func() { w.manager.keepRegistered(present, ctx, path) })
		return nil
	case !info.IsDir():
		return nil
	}
	// Watching begins before reading, so that nothing is missed. What both see is added once.
	if err := w.watcher.Add(path); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		inside := filepath.Join(path, entry.Name())
		if _, known := w.plugins[inside]; !known {
			_ = w.add(ctx, inside)
		}
	}
	return nil
}

// remove ends what add began for the socket at path.
func (w *registryWatch) remove(path string) {
	if cancel, known := w.plugins[path]; known {
		cancel()
		delete(w.plugins, path)
	}
}

// close ends everything and waits for it.
func (w *registryWatch) close() {
	for _, cancel := range w.plugins {
		cancel()
	}
	w.running.Wait()
}

// keepRegistered registers the plugin behind the socket, and again whenever its stream has ended,
// until ctx is done: the socket is gone, or sessions is done, too.
func (m *Manager) keepRegistered(ctx, sessions context.Context, socket string) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Endpoint, socket)
	initial := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}
	for backoff := initial; ctx.Err() == nil; sleep(ctx, backoff.Step()) {
		s, err := m.invite(ctx, sessions, socket)
		if err != nil {
			logger.Error(err, "Cannot register a device plugin of the registry; will retry")
			continue
		}
		backoff = initial
		stop := context.AfterFunc(ctx, s.close)
		<-s.ended
		stop()
	}
}

// invite asks the plugin behind the socket what it is, registers it and notifies it of the outcome.
func (m *Manager) invite(ctx, sessions context.Context, socket string) (*session, error) {
	conn, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registrationapi.NewRegistrationClient(conn)
	infoCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	info, err := client.GetInfo(infoCtx, &registrationapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("no answer from the plugin at %s to GetInfo within %v: %w", socket, dialTimeout,
			Reason(err))
	}
	s, err := m.admitInfo(ctx, sessions, socket, info)
	outcome := &registrationapi.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		outcome.Error = Reason(err).Error()
	}
	notifying, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if _, notifyErr := client.NotifyRegistrationStatus(notifying, outcome); notifyErr != nil && err == nil {
		s.close()
		return nil, fmt.Errorf("the plugin at %s does not take that it is registered: %w", socket, Reason(notifyErr))
	}
	return s, err
}

// admitInfo is admit for a plugin that has described itself.
func (m *Manager) admitInfo(
	ctx, sessions context.Context, socket string, info *registrationapi.PluginInfo,
) (*session, error) {
	if info.GetType() != registrationapi.DevicePlugin {
		return nil, status.Errorf(codes.InvalidArgument, "plugin type %q is not supported by kubecri: only %s is",
			info.GetType(), registrationapi.DevicePlugin)
	}
	if err := checkVersions(info.GetSupportedVersions()...); err != nil {
		return nil, err
	}
	endpoint, err := m.endpointOf(socket, info.GetEndpoint())
	if err != nil {
		return nil, err
	}
	return m.admit(ctx, sessions, types.ResourceName(info.GetName()), endpoint)
}

// kubeletDir is the kubelet's directory as plugins have written it down.
var kubeletDir = filepath.Dir(filepath.Clean(pluginapi.DevicePluginPath))

// endpointOf returns the socket at which the plugin behind a socket of the registry serves. The
// plugin names it by its path, which is one of the plugin's own container: mostly only its last
// element says something here. It is next to the socket that was found, or in the directory in
// which plugins register, or else where hosted says. A plugin that names none serves at the socket
// that was found.
func (m *Manager) endpointOf(socket, endpoint string) (string, error) {
	if endpoint == "" {
		return socket, nil
	}
	name := filepath.Base(endpoint)
	if slices.Contains([]string{".", "..", "/", socketName}, name) {
		return "", status.Errorf(codes.InvalidArgument,
			"endpoint %q does not end with the name of a plugin's socket: GetInfo must name the socket at which the "+
				"plugin serves", endpoint)
	}
	adjacent := filepath.Join(filepath.Dir(socket), name)
	if isSocket(adjacent) {
		return adjacent, nil
	}
	if other := filepath.Join(m.options.Dir, name); isSocket(other) {
		return other, nil
	}
	if other, there := m.hosted(filepath.Clean(endpoint)); there {
		return other, nil
	}
	return adjacent, nil // which it may be about to make
}

// hosted returns the socket that a plugin's path means if its container has the kubelet's directory
// or those of this manager where the node has them, and whether the socket is there. A plugin gets
// the manager's directories in place of two of the kubelet's; the others are the kubelet's own, as
// a driver's /var/lib/kubelet/plugins/x. No link leads out of these directories.
func (m *Manager) hosted(endpoint string) (socket string, there bool) {
	type mount struct{ inPlugin, here string }
	mounts := []mount{{m.options.RegistryDir, m.options.RegistryDir}, {m.options.Dir, m.options.Dir}}
	kubelets := []string{m.options.KubeletDir, kubeletDir}
	for _, dir := range kubelets {
		mounts = append(mounts, mount{filepath.Join(dir, RegistryDirName), m.options.RegistryDir},
			mount{filepath.Join(dir, DirName), m.options.Dir})
	}
	for _, dir := range kubelets {
		mounts = append(mounts, mount{dir, m.options.KubeletDir})
	}
	for _, at := range mounts {
		below, isBelow := strings.CutPrefix(endpoint, at.inPlugin+"/")
		if !isBelow || at.here == "" {
			continue
		}
		root, err := os.OpenRoot(at.here)
		if err != nil {
			return "", false
		}
		defer root.Close()
		info, err := root.Lstat(below)
		return filepath.Join(at.here, below), err == nil && info.Mode().Type() == os.ModeSocket
	}
	return "", false
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}
