use std::env;

/// The proxy variables of the environment, by curl's rules (BUGLOG D09): the variable of the
/// address's scheme, then `ALL_PROXY`; hosts of `NO_PROXY` and everything below them go direct.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxySettings {
    pub http: Option<String>,
    pub https: Option<String>,
    /// Comma-separated hosts; `*` is all of them.
    pub no_proxy: String,
}

impl ProxySettings {
    pub fn from_env() -> Self {
        Self::from_vars(|name| env::var(name).ok())
    }

    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let value = var(&name.to_lowercase()).or_else(|| var(name));
            value.filter(|value| !value.trim().is_empty())
        };
        Self {
            http: either("HTTP_PROXY").or_else(|| either("ALL_PROXY")),
            https: either("HTTPS_PROXY").or_else(|| either("ALL_PROXY")),
            no_proxy: either("NO_PROXY").unwrap_or_default(),
        }
    }

    /// For requests to `url` and where it redirects to.
    pub(super) fn for_url(&self, url: &str) -> Result<Option<ureq::Proxy>, String> {
        let https = url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        let Some(address) = (if https { &self.https } else { &self.http }) else { return Ok(None) };
        let bad = |problem: &str| format!("the proxy {:?} {problem}", without_password(address));
        let proxy = ureq::Proxy::new(address.trim()).map_err(|_| bad("is not an address"))?;
        if !matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https) {
            return Err(bad("is not an HTTP proxy, and others are not supported"));
        }
        let mut builder = ureq::Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
        if let Some(name) = proxy.username() {
            builder = builder.username(name);
        }
        if let Some(password) = proxy.password() {
            builder = builder.password(password);
        }
        for host in self.no_proxy.split(',').map(str::trim).filter(|host| !host.is_empty()) {
            let host = host.rsplit_once(':').map_or(host, |(name, port)| match port.parse::<u16>() {
                Ok(_) => name,
                Err(_) => host,
            });
            let domain = host.trim_start_matches("*.").trim_start_matches('.');
            builder = match domain {
                "*" => builder.no_proxy("*"),
                domain => builder.no_proxy(domain).no_proxy(&format!(".{domain}")),
            };
        }
        builder.build().map(Some).map_err(|_| bad("is not an address"))
    }
}

fn without_password(address: &str) -> String {
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}...{}", &address[..scheme + 3], &address[at..]),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> ProxySettings {
        ProxySettings::from_vars(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    // D09: which variable counts for which address.
    #[test]
    fn the_variable_of_the_scheme_then_all_proxy() {
        let both = settings(&[("HTTPS_PROXY", "http://secure:1"), ("http_proxy", "http://plain:2")]);
        assert_eq!(both.for_url("https://hub/x").unwrap().unwrap().host(), "secure");
        assert_eq!(both.for_url("http://hub/x").unwrap().unwrap().port(), 2);
        let all = settings(&[("ALL_PROXY", "http://name:pass@all:3"), ("HTTP_PROXY", " ")]);
        let proxy = all.for_url("http://hub/x").unwrap().unwrap();
        assert_eq!((proxy.host(), proxy.username(), proxy.password()), ("all", Some("name"), Some("pass")));
        assert!(settings(&[("HTTP_PROXY", "http://plain:2")]).for_url("https://hub/x").unwrap().is_none());
        assert!(settings(&[]).for_url("https://hub/x").unwrap().is_none());
    }

    #[test]
    fn no_proxy_covers_a_host_and_all_below_it() {
        let direct = |no_proxy: &str, url: &str| {
            let proxy =
                settings(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", no_proxy)]).for_url(url).unwrap();
            proxy.unwrap().is_no_proxy(&url.parse().unwrap())
        };
        assert!(direct("localhost, hub.example", "https://hub.example/x"));
        assert!(direct("hub.example", "https://cdn.hub.example/x"));
        assert!(direct(".hub.example:443", "https://cdn.hub.example/x"));
        assert!(direct("*.hub.example", "https://hub.example/x"));
        assert!(direct("*", "https://hub.example/x"));
        assert!(!direct("hub.example", "https://nothub.example/x"));
        assert!(!direct("", "https://hub.example/x"));
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        let error =
            settings(&[("ALL_PROXY", "socks5://me:secret@p:1")]).for_url("https://hub/x").unwrap_err();
        assert!(error.contains("socks5://...@p:1") && !error.contains("secret"), "{error}");
    }
}
