// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicepage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	apiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// portFlag is the flag for the port of the page.
const portFlag = "devices-secure-port"

// shutdownTimeout is how long requests in flight have to end when the scheduler stops, as
// upstream's have.
const shutdownTimeout = 5 * time.Second

// Server serves the page on a secure port of its own: upstream builds the handler of --secure-port
// without a hook for others; docs/design/devices-page.md has what was tried. All other flags of
// --secure-port hold for it too: the address, the certificates, authentication and authorization.
type Server struct {
	options *options.Options // of which the sections that concern serving are used
}

// NewServer returns a server without a port, which serves nothing.
func NewServer() *Server {
	s := &Server{options: options.NewOptions()}
	s.options.SecureServing.BindPort = 0
	return s
}

// AddFlags adds the server's own flag.
func (s *Server) AddFlags(flags *pflag.FlagSet) {
	flags.IntVar(&s.options.SecureServing.BindPort, portFlag, 0, "Port of the page "+Path+", which shows every node's "+
		"devices with their holders. Address, certificates, authentication and authorization are those of "+
		"--secure-port. 0 stands for no page.")
}

// Follow makes each of upstream's flags that concern serving set the server's options as well.
func (s *Server) Follow(upstream *pflag.FlagSet) {
	for _, section := range []string{"secure serving", "authentication", "authorization"} {
		s.options.Flags.FlagSet(section).VisitAll(func(own *pflag.Flag) {
			if flag := upstream.Lookup(own.Name); flag != nil && own.Name != "secure-port" {
				flag.Value = both{flag.Value, own.Value}
			}
		})
	}
}

// both is a flag's value that sets another one too.
type both struct {
	pflag.Value
	also pflag.Value
}

// Set sets both values.
func (b both) Set(value string) error {
	if err := b.Value.Set(value); err != nil {
		return err
	}
	return b.also.Set(value)
}

// Start serves the page until the context ends that run gives to the functions that it runs in the
// background. Without a port it does nothing.
func (s *Server) Start(run func(func(context.Context)), page http.Handler) error {
	if s.options.SecureServing.BindPort == 0 {
		return nil
	}
	if err := s.serve(run, page); err != nil {
		return fmt.Errorf("serve %s on --%s: %w", Path, portFlag, err)
	}
	return nil
}

func (s *Server) serve(run func(func(context.Context)), page http.Handler) error {
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
	stop := make(chan struct{})
	stopped, closed, err := serving.Serve(guard(page, authentication, authorization), shutdownTimeout, stop)
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
	return nil
}

// guard puts the filters around the page that upstream puts around its own endpoints.
func guard(
	page http.Handler, authentication apiserver.AuthenticationInfo, authorization apiserver.AuthorizationInfo,
) http.Handler {
	info := &apirequest.RequestInfoFactory{}
	unauthorized := genericapifilters.Unauthorized(scheme.Codecs)
	handler := genericapifilters.WithAuthorization(page, authorization.Authorizer, scheme.Codecs)
	handler = genericapifilters.WithAuthentication(handler, authentication.Authenticator, unauthorized, nil, nil)
	handler = genericapifilters.WithRequestInfo(handler, info)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	return genericfilters.WithPanicRecovery(handler, info)
}
