// Templates, methods, lambdas and virtual calls: names that several instances share, inlined several levels deep.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

template <class T> T clamp(T value, T low, T high) {
    if (value < low)
        return low;
    if (high < value)
        return high;
    return value;
}

class Shape {
public:
    virtual ~Shape() = default;
    virtual double area() const = 0;
    double scaled(double factor) const {
        double bounded = clamp(factor, 0.5, 2.0);
        return area() * bounded;
    }
};

class Square : public Shape {
public:
    explicit Square(double side) : side_(side) {}
    double area() const override { return side_ * side_; }

private:
    double side_;
};

class Oblong : public Shape {
public:
    Oblong(double width, double height) : width_(width), height_(height) {}
    double area() const override {
        if (width_ < 0)
            return 0;
        return width_ * height_;
    }

private:
    double width_, height_;
};

static std::string label(double area) {
    int size = clamp(static_cast<int>(area), 0, 9);
    std::string text;
    for (int i = 0; i < size; i++)
        text += static_cast<char>('a' + i);
    if (text.empty())
        text = "none";
    return text;
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 6; i++) {
        if (i % 2)
            shapes.push_back(std::make_unique<Square>(i));
        else
            shapes.push_back(std::make_unique<Oblong>(i, 2));
    }
    double sum = 0;
    auto add = [&](const Shape &shape) {
        double area = shape.scaled(0.25);
        if (area > 4)
            sum += area;
        return area;
    };
    for (const auto &shape : shapes) {
        double area = add(*shape);
        std::printf("%s %.2f\n", label(area).c_str(), area);
    }
    std::printf("%.2f\n", sum);
    return 0;
}
