// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nri registers kubecri as an NRI plugin of the container runtime. The plugin is there so
// that a container can require it, and changes none, unless there is a Handler that does. Where the
// runtime's default validator is on (containerd 2.2, CRI-O 1.34; off by default), a pod's
// annotation required-plugins.noderesource.dev names plugins without which the runtime refuses to
// create its containers. So a container with devices is not created without them after kubecri was
// taken away.
//
// No API says whether the validator is on. The configuration that the runtime runs with says so,
// where it can be read, see Machine. Elsewhere the runtime's behaviour does: it reports to each
// plugin that validates containers which plugins have seen the container, and its own validator is
// among them. So there a second plugin validates, next to the first one, until a container has been
// created. What is known ends with the connection to the runtime: another configuration needs a
// restart of it.
package nri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// DefaultSocket is where containerd and CRI-O serve NRI.
const DefaultSocket = "/var/run/nri/nri.sock"

const (
	// pluginIndex is the plugin's place among the others, the first: the runtime shows plugins what
	// those before them have set, and they must see the variables that kubecri overrides as it
	// leaves them.
	pluginIndex = "00"
	// probe is the name of the plugin that validates.
	probe = deviceinfo.NRIPlugin + "-probe"
	// probes is how often it is tried to register it, and probing the interval between two tries:
	// longer than it takes to notice that the runtime has ended.
	probes, probing = 3, time.Second
	// retry and maxRetry are the first and the longest backoff after a connection has ended. While
	// there is none, containers are created as their pods want them.
	retry, maxRetry = 100 * time.Millisecond, 2 * time.Second
)

// Options configure a Registration.
type Options struct {
	// Socket is the path of the runtime's NRI socket.
	Socket string
	// Handler handles the runtime's requests; nil if kubecri is only to be there.
	Handler Handler
	// List is the runtime's list of containers, which it sends to each plugin that registers; nil
	// for one that it can send in any case. Where there is a Handler, its Prepare checks the list.
	List ListChecker
	// Settings has the runtime's configuration; nil if it cannot be read.
	Settings SettingsReader
}

// ListChecker checks the runtime's list of containers.
type ListChecker interface {
	// Check returns why the runtime cannot send the list to a plugin that registers, or nil. A
	// plugin does not connect then.
	Check(ctx context.Context) error
}

// anyList is a list that the runtime can send.
type anyList struct{}

// Check implements ListChecker.
func (anyList) Check(context.Context) error { return nil }

// SettingsReader reads the runtime's configuration.
type SettingsReader interface {
	Settings(ctx context.Context) (Settings, error)
}

// Registration is kubecri's registration with the runtime. All methods are safe for concurrent use.
type Registration struct {
	socket   string
	handler  Handler // nil if kubecri is only to be there
	list     ListChecker
	settings SettingsReader // nil if the configuration cannot be read

	mu         sync.Mutex
	registered bool
	blocked    error // why there is no connection, by prepared
	known      bool  // since the connection to the runtime that there is, or was last
	enforced   bool
	reason     string // where it is known from, or why it is not
	changed    chan struct{}
}

// New returns a registration; call Run to make it.
func New(options Options) *Registration {
	r := &Registration{
		socket: options.Socket, handler: options.Handler, list: options.List, settings: options.Settings,
		reason: "kubecri was not registered yet", changed: make(chan struct{}),
	}
	if r.list == nil {
		r.list = anyList{}
	}
	return r
}

// Registered reports whether the runtime has registered kubecri.
func (r *Registration) Registered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered
}

// Enforced reports whether the runtime refuses containers that require a plugin that is not there;
// whether that is known, from the runtime's configuration, or else when one container was created;
// and a channel that is closed when any of this may have changed.
func (r *Registration) Enforced() (enforced, known bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enforced, r.known, r.changed
}

// Validator says in words whether the runtime's default validator is on, and how that is known.
func (r *Registration) Validator() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.known:
		return fmt.Sprintf("unknown until a container is created (%s)", r.reason)
	case r.enforced:
		return fmt.Sprintf("on (%s)", r.reason)
	default:
		return fmt.Sprintf("off (%s): containers with devices are created without them while kubecri is away", r.reason)
	}
}

// Check returns an error while kubecri is not registered, and the runtime refuses to create
// containers with devices because of that, or creates them without.
func (r *Registration) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registered || !r.enforced && r.handler == nil {
		return nil
	}
	follows := "the container runtime refuses containers with devices until it is"
	if !r.enforced {
		follows = "the container runtime does not call it for containers until it is"
	}
	if r.blocked != nil {
		return fmt.Errorf("kubecri is not registered with NRI at %s: %w; %s", r.socket, r.blocked, follows)
	}
	return fmt.Errorf("kubecri is not registered with NRI at %s: %s; see kubecri's log", r.socket, follows)
}

// Run keeps kubecri registered until ctx is done.
func (r *Registration) Run(ctx context.Context) {
	fresh := wait.Backoff{Duration: retry, Factor: 2, Steps: 16, Cap: maxRetry}
	backoff, said := fresh, ""
	for ctx.Err() == nil {
		if err := r.prepared(ctx); err != nil {
			if text := err.Error(); ctx.Err() == nil && text != said {
				klog.FromContext(ctx).Error(err, "Not registered with NRI; will retry", logkey.Endpoint, r.socket)
				said = text
			}
			_ = sleep(ctx, backoff.Step())
			continue
		}
		registered, err := r.serve(ctx)
		if registered {
			backoff, said = fresh, ""
		}
		if registered && r.handler != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("The container runtime has ended the NRI connection, and does not call about "+
				"containers until kubecri is registered again", logkey.Endpoint, r.socket)
		}
		if text := fmt.Sprint(err); ctx.Err() == nil && text != said {
			klog.FromContext(ctx).V(2).Info("Not registered with NRI; will retry", logkey.Endpoint, r.socket,
				logkey.Reason, text)
			said = text
		}
		_ = sleep(ctx, backoff.Step())
	}
}

// prepared returns why there must be no connection now.
func (r *Registration) prepared(ctx context.Context) error {
	check := r.list.Check
	if r.handler != nil {
		check = r.handler.Prepare
	}
	err := check(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = err
	return err
}

// serve registers with the runtime. It returns when the connection ends, and whether the runtime
// had registered the plugin.
func (r *Registration) serve(ctx context.Context) (registered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var probing sync.WaitGroup
	defer probing.Wait()
	defer cancel() // before the wait
	var plugin plugin = presencePlugin{newMember()}
	if r.handler != nil {
		plugin = requestPlugin{newMember(), utf8Handler{r.handler}}
	}
	err = connect(ctx, r.socket, deviceinfo.NRIPlugin, plugin, func() {
		registered = true
		klog.FromContext(ctx).V(2).Info("Registered with NRI", logkey.Endpoint, r.socket,
			logkey.Plugin, deviceinfo.NRIPlugin)
		r.update(func() {
			r.registered, r.known, r.reason = true, false, "its configuration was not read yet"
		})
		probing.Go(func() {
			if !r.read(ctx) {
				r.probe(ctx)
			}
		})
	})
	if registered {
		r.update(func() { r.registered = false })
	}
	if r.handler != nil {
		r.handler.Left()
	}
	return registered, err
}

// probe finds out whether the runtime has a validator. One that refuses to register the probe is
// too old for plugins that validate, and has none.
func (r *Registration) probe(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	for range probes {
		if r.awaitList(ctx) != nil {
			return
		}
		validator := &validator{member: newMember(), registration: r, leave: cancel}
		err = connect(ctx, r.socket, probe, validator, func() {})
		if sleep(ctx, probing) != nil {
			return
		}
	}
	klog.FromContext(ctx).V(2).Info("The runtime accepts no NRI plugin that validates", logkey.Reason, fmt.Sprint(err))
	r.setFound(ctx, false)
}

// awaitList waits until the runtime can send its list to the probe, or returns an error when
// ctx is done.
func (r *Registration) awaitList(ctx context.Context) error {
	backoff := wait.Backoff{Duration: retry, Factor: 2, Steps: 16, Cap: maxRetry}
	for ctx.Err() == nil {
		err := r.list.Check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			r.update(func() { r.reason = err.Error() })
		}
		_ = sleep(ctx, backoff.Step())
	}
	return ctx.Err()
}

func (r *Registration) setFound(ctx context.Context, enforced bool) {
	klog.FromContext(ctx).V(2).Info("Probed whether containers can require NRI plugins", logkey.Validator, enforced)
	r.update(func() {
		r.known, r.enforced, r.reason = true, enforced, "seen when a container was created"
	})
}

// read reads from the runtime's configuration what probe finds out, and reports whether it could.
func (r *Registration) read(ctx context.Context) bool {
	settings, err := Settings{}, errors.New("kubecri has no reader of its configuration")
	if r.settings != nil {
		settings, err = r.settings.Settings(ctx)
	}
	r.update(func() {
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.reason = err.Error()
		default:
			r.known, r.enforced, r.reason = true, settings.Enabled, "by "+settings.File
		}
	})
	klog.FromContext(ctx).V(2).Info("Read whether containers can require NRI plugins", logkey.Validator, r.Validator())
	return err == nil
}

// update changes the state.
func (r *Registration) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// sleep waits for d, or returns an error when ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
