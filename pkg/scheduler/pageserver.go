// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

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

// pagePortFlag is the flag for the port of the page of devices.
const pagePortFlag = "devices-secure-port"

// pageShutdown is how long requests in flight have to end when the scheduler stops, as upstream's have.
const pageShutdown = 5 * time.Second

// pageServer serves the page of devices on a secure port of its own. Upstream builds the handler of --secure-port without
// a place for ours; docs/design/devices-page.md has what was tried. All other flags of --secure-port hold for it too: the
// address, the certificates, and who may authenticate and is authorised how.
type pageServer struct {
	options *options.Options // of which the sections that concern serving are used
}

func newPageServer() *pageServer {
	s := &pageServer{options: options.NewOptions()}
	s.options.SecureServing.BindPort = 0
	return s
}

// addFlags adds the server's own flag.
func (s *pageServer) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&s.options.SecureServing.BindPort, pagePortFlag, 0,
		"Port of the page /debug/devices, which shows every node's devices with their holders. Address, certificates, authentication and authorization are those of --secure-port. 0 stands for no page.")
}

// follow has each flag of upstream's that concerns serving set the server's options as well.
func (s *pageServer) follow(upstream *pflag.FlagSet) {
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

// start serves the page until the background ends. It does nothing when no port was asked for.
func (s *pageServer) start(background *background, page http.Handler) error {
	if s.options.SecureServing.BindPort == 0 {
		return nil
	}
	if err := s.serve(background, page); err != nil {
		return fmt.Errorf("serve the page of devices on --%s: %w", pagePortFlag, err)
	}
	return nil
}

func (s *pageServer) serve(background *background, page http.Handler) error {
	o := s.options
	invalid := append(append(o.SecureServing.Validate(), o.Authentication.Validate()...), o.Authorization.Validate()...)
	if err := utilerrors.NewAggregate(invalid); err != nil {
		return err
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
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
	stopped, closed, err := serving.Serve(guard(page, authentication, authorization), pageShutdown, stop)
	if err != nil {
		close(stop)
		return err
	}
	background.run(func(ctx context.Context) {
		<-ctx.Done()
		close(stop)
		<-closed
		<-stopped
	})
	return nil
}

// guard puts the filters around the page that upstream puts around its own endpoints.
func guard(page http.Handler, authentication apiserver.AuthenticationInfo, authorization apiserver.AuthorizationInfo) http.Handler {
	info := &apirequest.RequestInfoFactory{}
	unauthorized := genericapifilters.Unauthorized(scheme.Codecs)
	handler := genericapifilters.WithAuthorization(page, authorization.Authorizer, scheme.Codecs)
	handler = genericapifilters.WithAuthentication(handler, authentication.Authenticator, unauthorized, nil, nil)
	handler = genericapifilters.WithRequestInfo(handler, info)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	return genericfilters.WithPanicRecovery(handler, info)
}
