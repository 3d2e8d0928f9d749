// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"os"
	"path/filepath"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// sends registers a plugin by a request that a row changes, and returns the outcome, and what is
// offered then.
func sends(change func(*pluginapi.RegisterRequest)) func(*side) string {
	return func(s *side) string {
		p := s.offers(dev("a")).serve()
		request := p.request()
		change(request)
		said := s.send(request)
		if said == "refused" {
			return said
		}
		return said + ", offers " + s.offered("a")
	}
}

// describes puts a plugin into the registry that describes itself in a way, and returns what it was
// notified of, and what is offered then.
func describes(name, endpoint string, change ...func(*registrationapi.PluginInfo)) func(*side) string {
	return func(s *side) string {
		said := s.offersInRegistry(s.row+name, endpoint, []*pluginapi.Device{dev("a")}, change...).notified()
		if said != "registered" {
			return said
		}
		return said + ", offers " + s.offered("a")
	}
}

// registrations are the ways in which plugins register.
func registrations() []behaviour {
	const well = "registered, offers a"
	return []behaviour{
		{name: "registers with the base name of its socket", row: "base", want: well,
			play: sends(func(*pluginapi.RegisterRequest) {})},
		{name: "registers with a path that is not cleaned", row: "unclean", want: well,
			play: sends(func(r *pluginapi.RegisterRequest) { r.Endpoint = "./x/../" + r.Endpoint })},
		{name: "registers a socket in a directory below", row: "below", want: well, play: func(s *side) string {
			p := s.at(filepath.Join(s.plugins, s.row, "p.sock"), dev("a")).serve()
			request := p.request()
			request.Endpoint = s.row + "/p.sock"
			return s.send(request) + ", offers " + s.offered("a")
		}},
		{name: "registers another version of the API", row: "version", want: "refused",
			play: sends(func(r *pluginapi.RegisterRequest) { r.Version = "v1alpha" })},
		{name: "registers a resource that is no extended one", row: "resource", want: "refused",
			play: sends(func(r *pluginapi.RegisterRequest) { r.ResourceName = "diff" })},
		{name: "registers a socket that is not there", row: "nosocket", want: "refused",
			play: sends(func(r *pluginapi.RegisterRequest) { r.Endpoint = "no-such.sock" })},
		{name: "registers an absolute path", row: "absolute", want: "refused",
			play: sends(func(r *pluginapi.RegisterRequest) { r.Endpoint = pluginapi.DevicePluginPath + r.Endpoint })},
		{name: "fails to say its options", row: "options", want: "refused", play: func(s *side) string {
			p := s.offers(dev("a"))
			p.OptionsError = errors.New("no options")
			return s.send(p.serve().request())
		}},
		{name: "registers twice", row: "twice", want: "a", play: func(s *side) string {
			p := s.offers(dev("a")).serve().register()
			s.offered("a")
			s.send(p.request())
			return s.offered("a")
		}},
		{name: "registers two resources at one socket", row: "two", want: "a and a", play: func(s *side) string {
			p := s.offers(dev("a")).serve().register()
			first := s.offered("a")
			s.resource += "-2"
			p.register()
			return first + " and " + s.offered("a")
		}},
		{name: "is in the registry, and names no endpoint", row: "reg", want: well, play: describes(".sock", "")},
		{name: "is in the registry, and names the kubelet's path as its endpoint", row: "regpath", want: well,
			play: describes(".sock", "/var/lib/kubelet/plugins_registry/regpath.sock")},
		{name: "is in a directory of the registry", row: "regbelow", want: well, play: describes("/p.sock", "")},
		{name: "is in the registry, and names a socket where plugins register", row: "regother", want: well,
			play: func(s *side) string {
				s.offers(dev("a")).serve()
				return describes("-reg.sock", pluginapi.DevicePluginPath+s.row+".sock")(s)
			}},
		{name: "is in the registry, and of another type", row: "regtype", want: "refused",
			play: describes(".sock", "", func(i *registrationapi.PluginInfo) { i.Type = "Unknown" })},
		{name: "is in the registry, and speaks another version", row: "regversion", want: "refused",
			play: describes(".sock", "", func(i *registrationapi.PluginInfo) { i.SupportedVersions = []string{"v2"} })},
		{name: "is in the registry, and serves a resource that is no extended one", row: "regname", want: "refused",
			play: describes(".sock", "", func(i *registrationapi.PluginInfo) { i.Name = "diff" })},
		{name: "is in the registry by a name with a dot before it", row: "reghidden", want: "not notified",
			play: func(s *side) string {
				return s.offersInRegistry("."+s.row, "", []*pluginapi.Device{dev("a")}).notified()
			}},
		{name: "takes its socket out of the registry", row: "regaway", want: "a, then ", play: func(s *side) string {
			p := s.offersInRegistry(s.row+".sock", "", []*pluginapi.Device{dev("a")})
			before := s.offered("a")
			if err := os.Remove(p.socket); err != nil {
				return err.Error()
			}
			return before + ", then " + s.offered()
		}},
		{name: "comes back to the registry", row: "regback", want: "a, then b", play: func(s *side) string {
			p := s.offersInRegistry(s.row+".sock", "", []*pluginapi.Device{dev("a")})
			before := s.offered("a")
			p.Stop()
			s.offered()
			s.offersInRegistry(s.row+".sock", "", []*pluginapi.Device{dev("b")})
			return before + ", then " + s.offered("b")
		}},
	}
}
