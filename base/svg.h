// SPDX-License-Identifier: MIT
// Writes an SVG 1.1 drawing: rectangles, texts and lines in user units, y downwards. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flextrain {

// For element content and attribute values; control characters, which XML cannot hold, are dropped.
std::string xml_escaped(std::string_view text);

struct SvgPoint {
  double x = 0, y = 0;
};

struct SvgTextStyle {
  double size = 11;
  std::string_view colour = "#222222";
  std::string_view anchor = "start";  // or "middle", "end"
};

struct SvgBoxStyle {
  std::string_view fill = "none", stroke = "none";
  double stroke_width = 1;
  std::string_view tooltip = "";  // shown by browsers over the box; "" = none
};

class Svg {
 public:
  Svg(double width, double height);  // with a white ground

  void box(double x, double y, double width, double height, const SvgBoxStyle& style);
  void text(double x, double y, std::string_view text, const SvgTextStyle& style = {});
  void line(const std::vector<SvgPoint>& points, std::string_view colour, double width = 1);

  std::string document() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

}  // namespace flextrain
