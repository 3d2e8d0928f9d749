{{- /* What the search reads: of each page its title, its address, and its sections: heading, anchor, text. */ -}}
{{- $pages := slice -}}
{{- $root := strings.TrimSuffix "index.html" site.Home.RelPermalink -}}
{{- range site.RegularPages -}}
  {{- $sections := slice -}}
  {{- range $i, $part := split (replaceRE `<h[23] id="` "\x00" .Content) "\x00" -}}
    {{- $heading := "" -}}{{- $anchor := "" -}}
    {{- if $i -}}
      {{- $anchor = index (split $part `"`) 0 -}}
      {{- $heading = index (index (findRESubmatch `(?s)^[^>]*>(.*?)<a class="anchor"` $part 1) 0) 1 | plainify | htmlUnescape -}}
      {{- $part = replaceRE `(?s)^.*?</h[23]>` "" $part 1 -}}
    {{- else -}}
      {{- $part = replaceRE `(?s)^.*?</h1>` "" $part 1 -}}
    {{- end -}}
    {{- $text := replaceRE `\s+` " " ($part | plainify | htmlUnescape) -}}
    {{- $sections = $sections | append (dict "heading" $heading "anchor" $anchor "text" $text) -}}
  {{- end -}}
  {{- $pages = $pages | append (dict "title" (partialCached "title.html" . .).plain "address" (strings.TrimPrefix $root .RelPermalink) "sections" $sections) -}}
{{- end -}}
window.documents = {{ $pages | jsonify (dict "noHTMLEscape" true) }}
