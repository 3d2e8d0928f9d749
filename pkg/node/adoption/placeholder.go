// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// socketName is the socket at which plugins register with the kubelet.
	socketName = "kubelet.sock"
	// socketPrefix begins the names of the placeholders' sockets in the kubelet's directory.
	socketPrefix = "kubecri-"
	// registerTimeout is for the kubelet to take a registration, and then to request the devices.
	registerTimeout = 10 * time.Second
	// leaveTimeout is for the kubelet to close its connection when a placeholder leaves.
	leaveTimeout = time.Second
	// registerInterval is the time before a placeholder that could not register, or that the
	// kubelet leaves again and again, tries it again.
	registerInterval = 500 * time.Millisecond
	// connectInterval is the time between two attempts to connect to the kubelet while it is away:
	// when it starts, it admits the node's pods again, which fail if no plugin has registered.
	connectInterval = 50 * time.Millisecond
)

// claim is a resource that the kubelet is to have from this program. *devicemanager.Takeover is
// one.
type claim interface {
	// Ended returns a channel that is closed when the kubelet is not to have it any more.
	Ended() <-chan struct{}
	// Devices returns the devices as the kubelet is to have them, and a channel that is closed when
	// they may be others.
	Devices() (list []devicemanager.KubeletDevice, changed <-chan struct{})
	// Offer lets pods be allocated the resource's devices: the kubelet has them.
	Offer()
	// Forget ends the claim: the kubelet has forgotten the resource.
	Forget(ctx context.Context)
}

var _ claim = (*devicemanager.Takeover)(nil)

// contestable is a claim on a resource that the kubelet may have from another plugin, too, whose
// devices have other IDs. The kubelet (1.37, pkg/kubelet/cm/devicemanager) keeps one list of a
// resource, the last that any plugin sent: a plugin that sends none until its devices change does
// not get its own back when a placeholder has sent one and leaves.
type contestable interface {
	claim
	// Contested reports whether the kubelet must not be sent devices now, and ends the claim then.
	Contested(ctx context.Context) bool
}

// placeholder serves a resource to the kubelet in the place of the plugin, which has registered
// with this program: with the devices' IDs and health, and with an Allocate that adds nothing but
// an annotation. The kubelet then counts and publishes the resource by itself. It keeps what it
// allocated to containers before, and allocates it to them when they start again. Which IDs it
// picks for other containers means nothing.
//
// The list has no topology: the kubelet would refuse pods because of devices that they do not get.
type placeholder struct {
	resource  types.ResourceName
	takeover  claim
	directory string // the kubelet's
	grants    Grants
}

// run is registered with the kubelet until the takeover has ended or ctx is done.
func (p *placeholder) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-p.takeover.Ended():
			cancel()
		case <-ctx.Done():
		}
	})
	logged := ""
	var again time.Time // the last registration without an interval
	for {
		p.awaitKubelet(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.isForgotten() {
			p.takeover.Forget(ctx)
			return
		}
		if isContested(ctx, p.takeover) {
			return
		}
		err := p.register(ctx)
		if ctx.Err() != nil || p.isEnded() {
			return
		}
		if err == nil {
			// At once: kubelets before 1.37 know one plugin of a resource, and leave that of the
			// next kubecri, too, when the one before it leaves them. Until it is back, pods fail.
			logged = ""
			klog.FromContext(ctx).Info("The kubelet has left; registering in the place of the device plugin again")
			if time.Since(again) > registerInterval {
				again = time.Now()
				continue
			}
		} else if err.Error() != logged {
			logged = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot register in the place of a device plugin; will retry")
		}
		sleep(ctx, registerInterval)
	}
}

// isContested reports whether the kubelet must not be sent devices for a claim now.
func isContested(ctx context.Context, c claim) bool {
	contested, is := c.(contestable)
	return is && contested.Contested(ctx)
}

// isEnded reports whether the claim has ended.
func (p *placeholder) isEnded() bool {
	select {
	case <-p.takeover.Ended():
		return true
	default:
		return false
	}
}

// isForgotten reports whether the kubelet has forgotten the resource, as when its checkpoint was
// lost.
func (p *placeholder) isForgotten() bool {
	state, err := kubeletstate.Read(filepath.Join(p.directory, kubeletstate.CheckpointName))
	return err == nil && !state.Remembers(p.resource)
}

// awaitKubelet waits until the kubelet takes registrations.
func (p *placeholder) awaitKubelet(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := devicemanager.DialSocket(ctx, filepath.Join(p.directory, socketName))
		if err == nil {
			conn.Close()
			return
		}
		sleep(ctx, connectInterval)
	}
}

// register serves the kubelet until it leaves or ctx is done. Each time the socket has another
// name: the kubelet removes all sockets when it starts, and takes no second plugin at one that it
// is connected to, as while one kubecri takes over from another.
func (p *placeholder) register(ctx context.Context) error {
	name := socketPrefix + strings.ToLower(rand.Text()[:10]) + ".sock"
	listener, err := net.Listen("unix", filepath.Join(p.directory, name))
	if err != nil {
		return fmt.Errorf("socket for the kubelet: %w", err)
	}
	registered := newRegistration(ctx, p.takeover, p.grants)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, registered)
	var serving sync.WaitGroup
	serving.Go(func() {
		// Its error is that the server is stopped.
		_ = server.Serve(listener)
	})
	defer serving.Wait()
	defer func() {
		// What was sent reaches the kubelet before it notices that the placeholder leaves.
		limit := time.AfterFunc(leaveTimeout, server.Stop)
		defer limit.Stop()
		server.GracefulStop()
	}()
	if err := p.announce(ctx, name); err != nil {
		return err
	}
	limit := time.NewTimer(registerTimeout)
	defer limit.Stop()
	select {
	case <-registered.connected:
		klog.FromContext(ctx).Info("Registered with the kubelet in the place of the device plugin",
			logkey.Endpoint, name)
	case <-registered.left:
		return nil
	case <-limit.C:
		return fmt.Errorf("the kubelet has registered %s and not requested its devices within %v",
			p.resource, registerTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-registered.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce calls Register of the kubelet.
func (p *placeholder) announce(ctx context.Context, endpoint string) error {
	kubelet := filepath.Join(p.directory, socketName)
	conn, err := devicemanager.Dial(kubelet)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: string(p.resource),
		Options: &pluginapi.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet at %s: %w", p.resource, kubelet,
			devicemanager.Reason(err))
	}
	return nil
}

// removeStaleSockets removes the sockets of placeholders of processes that were killed.
func removeStaleSockets(ctx context.Context, directory string) {
	stale, err := filepath.Glob(filepath.Join(directory, socketPrefix+"*.sock"))
	if err != nil {
		return // cannot be: the pattern is well-formed
	}
	for _, path := range stale {
		if conn, err := devicemanager.DialSocket(ctx, path); err == nil {
			conn.Close() // another kubecri's, which serves still
		} else if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			klog.FromContext(ctx).Error(err, "Cannot remove a stale socket from the kubelet's directory")
		}
	}
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
