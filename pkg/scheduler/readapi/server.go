// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// shutdownTimeout is how long requests in flight may take when the scheduler stops, as in upstream.
const shutdownTimeout = 5 * time.Second

// Server serves the API on a secure port of its own: upstream builds the handler of --secure-port
// without a hook; docs/contributing/design/scheduler-api.md describes the alternatives. All other
// flags of
// --secure-port apply to it too: the address, the certificates, authentication and authorization.
type Server struct {
	options *options.Options // only the sections about serving are used
}

// NewServer returns a server that serves nothing until Start.
func NewServer() *Server {
	s := &Server{options: options.NewOptions()}
	s.options.SecureServing.BindPort = 0
	return s
}

// Follow makes each of upstream's flags about serving set the server's options as well.
func (s *Server) Follow(upstream *pflag.FlagSet) {
	for _, section := range []string{"secure serving", "authentication", "authorization"} {
		s.options.Flags.FlagSet(section).VisitAll(func(own *pflag.Flag) {
			if flag := upstream.Lookup(own.Name); flag != nil && own.Name != "secure-port" {
				flag.Value = pairedValue{flag.Value, own.Value}
			}
		})
	}
}

// pairedValue is a flag's value that sets another value too.
type pairedValue struct {
	pflag.Value
	also pflag.Value
}

// Set sets both values.
func (b pairedValue) Set(value string) error {
	if err := b.Value.Set(value); err != nil {
		return err
	}
	return b.also.Set(value)
}

// Parts are the parts of the API.
type Parts struct {
	Source Source
	// Placement answers questions about placement; nil if this scheduler does not.
	Placement http.Handler
	// Client publishes the address of the API.
	Client kubernetes.Interface
	// Pods are all pods, including the scheduler's own if it runs in one.
	Pods corelisters.PodLister
	// Informers are those of nodes and pods.
	Informers []Informer
}

// Informer is the part of a cache.SharedIndexInformer that a server needs.
type Informer interface {
	// HasSynced reports whether the informer has all objects of its first list.
	HasSynced() bool
}

// Start serves the API on the port and publishes its address until the context ends that run passes
// to its background functions. With port 0 it does nothing.
func (s *Server) Start(run func(func(context.Context)), port int, parts Parts) error {
	if port == 0 {
		return nil
	}
	s.options.SecureServing.BindPort = port
	if err := s.serve(run, parts); err != nil {
		return fmt.Errorf("serve %s on port %d: %w", schedulerapi.Prefix, port, err)
	}
	return nil
}

func (s *Server) serve(run func(func(context.Context)), parts Parts) error {
	o := s.options
	invalid := append(append(o.SecureServing.Validate(), o.Authentication.Validate()...), o.Authorization.Validate()...)
	if err := utilerrors.NewAggregate(invalid); err != nil {
		return err
	}
	err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	var serving *apiserver.SecureServingInfo
	var authentication apiserver.AuthenticationInfo
	var authorization apiserver.AuthorizationInfo
	if err := o.SecureServing.ApplyTo(&serving); err != nil {
		return err
	}
	if err := o.Authentication.ApplyTo(&authentication, serving, nil); err != nil {
		return err
	}
	if err := o.Authorization.ApplyTo(&authorization); err != nil {
		return err
	}
	client, err := s.identify(parts)
	if err != nil {
		return err
	}
	api := NewHandler(Options{Source: parts.Source, Placement: parts.Placement, Self: client})
	stop := make(chan struct{})
	stopped, closed, err := serving.Serve(guard(api, authentication, authorization), shutdownTimeout, stop)
	if err != nil {
		close(stop)
		return err
	}
	run(func(ctx context.Context) {
		<-ctx.Done()
		close(stop)
		<-closed
		<-stopped
	})
	run(func(ctx context.Context) { client.awaitComplete(ctx, parts.Informers) })
	publisher := &publisher{
		leases: parts.Client.CoordinationV1().Leases(schedulerapi.Namespace), name: client.name, self: client,
		certificate: serving.Cert, clock: client.clock,
	}
	run(publisher.run)
	return nil
}

// identity describes this scheduler. It is safe for concurrent use.
type identity struct {
	name, host, bindAddress string
	port                    int
	pods                    corelisters.PodLister
	clock                   clock.WithTicker
	leadership              *Leadership
	since                   atomic.Pointer[time.Time] // see schedulerapi.Server.CompleteSince
}

func (s *Server) identify(parts Parts) (*identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	i := &identity{
		host: strings.ToLower(host), bindAddress: s.options.SecureServing.BindAddress.String(),
		port: s.options.SecureServing.BindPort, pods: parts.Pods, clock: clock.RealClock{},
	}
	// It is the same after a restart, so that no lease remains.
	i.name = fmt.Sprintf("%s-%d", strings.ReplaceAll(i.host, "_", "-"), i.port)
	i.leadership = NewLeadership(i)
	return i, nil
}

// awaitComplete waits until the informers have all of the cluster.
func (i *identity) awaitComplete(ctx context.Context, informers []Informer) {
	synced := make([]cache.InformerSynced, 0, len(informers))
	for _, informer := range informers {
		synced = append(synced, informer.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		now := i.clock.Now()
		i.since.Store(&now)
	}
}

// CompleteSince returns the time since which the scheduler knows the cluster, or the zero time.
func (i *identity) CompleteSince() time.Time {
	if since := i.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Server describes this scheduler.
func (i *identity) Server() schedulerapi.Server {
	return schedulerapi.Server{
		Instance:      schedulerapi.Instance{Name: i.name, Leads: i.leadership.Leads()},
		Version:       version.Get().GitVersion,
		CompleteSince: i.CompleteSince(),
	}
}

func (i *identity) address() schedulerapi.Address {
	self := i.Server()
	a := schedulerapi.Address{
		Host: i.host, BindAddress: i.bindAddress, Port: i.port, Leads: self.Leads, Version: self.Version,
	}
	a.PodNamespace, a.Pod = i.pod()
	return a
}

// pod returns the pod of this process, if there is one. As long as not all pods are known, one that
// the environment names is.
func (i *identity) pod() (namespace, name string) {
	namespace, name = schedulerapi.OwnPod(i.host)
	isNamed := i.CompleteSince().IsZero() && os.Getenv(schedulerapi.PodNameVariable) != ""
	if _, err := i.pods.Pods(namespace).Get(name); apierrors.IsNotFound(err) && !isNamed {
		return "", ""
	}
	return namespace, name
}

// guard adds the filters that upstream has around its own endpoints.
func guard(
	api http.Handler, authentication apiserver.AuthenticationInfo, authorization apiserver.AuthorizationInfo,
) http.Handler {
	info := &apirequest.RequestInfoFactory{}
	unauthorized := genericapifilters.Unauthorized(scheme.Codecs)
	handler := genericapifilters.WithAuthorization(api, authorization.Authorizer, scheme.Codecs)
	handler = genericapifilters.WithAuthentication(handler, authentication.Authenticator, unauthorized, nil, nil)
	handler = genericapifilters.WithRequestInfo(handler, info)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	return genericfilters.WithPanicRecovery(handler, info)
}
